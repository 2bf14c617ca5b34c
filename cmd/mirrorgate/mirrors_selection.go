package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorgate/mirrorgate/broker"
)

// topicSelection says which topics a command is about.
type topicSelection struct {
	topics  []string
	pattern string
	all     bool

	expression *regexp.Regexp
}

func (s *topicSelection) register(cmd *cobra.Command, verb string) {
	cmd.Flags().StringSliceVar(&s.topics, "topics", nil, "topics to "+verb+", with commas between them")
	cmd.Flags().StringVar(&s.pattern, "topics-pattern", "", verb+" the topics whose whole name matches this regular expression (RE2)")
	cmd.Flags().BoolVar(&s.all, "all-topics", false, verb+" all topics")
}

// check makes the selection ready. At most one of the flags may be given, and one must if required.
func (s *topicSelection) check(required bool) error {
	var topics []string
	for _, name := range s.topics {
		if name = strings.TrimSpace(name); name != "" && !slices.Contains(topics, name) {
			topics = append(topics, name)
		}
	}
	flags := 0
	for _, given := range []bool{s.topics != nil, s.pattern != "", s.all} {
		if given {
			flags++
		}
	}
	switch {
	case flags > 1:
		return usagef("--topics, --topics-pattern and --all-topics exclude each other; give one")
	case s.topics != nil && len(topics) == 0:
		return usagef("--topics names no topic")
	case required && flags == 0:
		return usagef("no topics; give --topics a,b or --topics-pattern RE or --all-topics")
	}
	s.topics = topics
	if s.pattern != "" {
		var err error
		if s.expression, err = regexp.Compile("^(?:" + s.pattern + ")$"); err != nil {
			return usagef("--topics-pattern: %v", err)
		}
	}
	return nil
}

// matches reports whether a topic is selected; without any flag all are.
func (s *topicSelection) matches(name string) bool {
	switch {
	case len(s.topics) > 0:
		return slices.Contains(s.topics, name)
	case s.expression != nil:
		return s.expression.MatchString(name)
	}
	return true
}

// sourceTopic is a topic that the source has.
type sourceTopic struct {
	name string
	id   [16]byte
}

// atSource returns the selected topics that the source has, by name. Topics that begin with two underscores, and those
// that the source calls internal, are never selected by a pattern or --all-topics: they belong to a cluster or a tool.
func (s *topicSelection) atSource(ctx context.Context, source broker.Config) ([]sourceTopic, error) {
	client, err := kgo.NewClient(append(source.KgoOptions(), kgo.RequestRetries(2))...)
	if err != nil {
		return nil, fmt.Errorf("making a client for the source %s: %w", source, err)
	}
	defer client.Close()
	listed, err := kadm.NewClient(client).ListTopics(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing the topics of the source %s: %w; if the source needs credentials or another address, give "+
			"--source-config", source, err)
	}
	var topics []sourceTopic
	for _, topic := range listed {
		if topic.Err == nil && !topic.IsInternal && !strings.HasPrefix(topic.Topic, "__") && s.matches(topic.Topic) {
			topics = append(topics, sourceTopic{topic.Topic, topic.ID})
		}
	}
	if len(topics) == 0 {
		return nil, fmt.Errorf("the source %s has no such topics", source)
	}
	sort.Slice(topics, func(i, j int) bool { return topics[i].name < topics[j].name })
	return topics, nil
}

// named returns the topics of --topics, whose IDs are not known.
func (s *topicSelection) named() []sourceTopic {
	topics := make([]sourceTopic, len(s.topics))
	for i, name := range s.topics {
		topics[i].name = name
	}
	return topics
}

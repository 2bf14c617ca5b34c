package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sort"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// LoadFile sets every flag of fs that the YAML file at path names and that was not given on the command line. The keys
// of the file are the names of the flags. A key that is no flag, or a value that the flag refuses, is an error with its
// line. Lists are written as YAML lists or with commas, key=value settings as YAML maps.
func LoadFile(fs *pflag.FlagSet, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	if err := load(fs, text); err != nil {
		return fmt.Errorf("configuration file %s: %w", path, err)
	}
	return nil
}

func load(fs *pflag.FlagSet, text []byte) error {
	var values map[string]yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	if err := decoder.Decode(&values); errors.Is(err, io.EOF) {
		return nil
	} else if err != nil {
		return err
	}
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	sort.Slice(names, func(i, j int) bool { return values[names[i]].Line < values[names[j]].Line })
	for _, name := range names {
		node := values[name]
		flag := fs.Lookup(name)
		if flag == nil || name == "config" || name == "help" {
			return fmt.Errorf("line %d: unknown setting %q", node.Line, name)
		}
		if flag.Changed {
			continue // the command line wins
		}
		value, err := scalar(&node)
		if err != nil {
			return fmt.Errorf("line %d: %s: %w", node.Line, name, err)
		}
		if err := fs.Set(name, value); err != nil {
			return fmt.Errorf("line %d: %w", node.Line, err)
		}
	}
	return nil
}

// scalar writes a value as it would stand on the command line.
func scalar(node *yaml.Node) (string, error) {
	switch node.Kind {
	case yaml.ScalarNode:
		if node.Tag == "!!null" {
			return "", fmt.Errorf("has no value")
		}
		return node.Value, nil
	case yaml.SequenceNode:
		var items []string
		if err := node.Decode(&items); err != nil {
			return "", err
		}
		return strings.Join(items, ","), nil
	case yaml.MappingNode:
		var items map[string]string
		if err := node.Decode(&items); err != nil {
			return "", err
		}
		pairs := make([]string, 0, len(items))
		for k, v := range items {
			pairs = append(pairs, k+"="+v)
		}
		sort.Strings(pairs)
		return strings.Join(pairs, ","), nil
	}
	return "", fmt.Errorf("is not a plain value, a list or a map")
}

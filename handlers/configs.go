package handlers

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/mirror"
)

// resourceMirror is the resource type of a mirror's configuration; the resource's name is the mirror's.
const resourceMirror kmsg.ConfigResourceType = 64

// held reports whether a topic setting may not be changed while a topic is mirrored: with another value the destination
// would refuse or change what comes from the source.
func held(name string) bool {
	return mirror.HeldSetting(name) || name == "cleanup.policy" || name == "max.message.bytes"
}

// configRefusal is why a resource is not handed to the destination; the zero value is no refusal.
type configRefusal struct {
	code    int16
	message *string
	topic   *mirror.Topic // whose rights come first; nil for none
}

// by returns code and message in the light of the client's rights.
func (c configRefusal) by(why verdict) (int16, *string) {
	if c.topic != nil {
		if code, message := why(c.topic); code != refusedCode {
			return code, message
		}
	}
	return c.code, c.message
}

// topicsOf returns the topics of refusals.
func topicsOf(refusals []configRefusal) []*mirror.Topic {
	var topics []*mirror.Topic
	for _, c := range refusals {
		if c.topic != nil {
			topics = append(topics, c.topic)
		}
	}
	return topics
}

// refuseMirrorResource refuses resources of type mirror where they cannot be: in AlterConfigs, which replaces a whole
// configuration, so that a client that does not know the secrets would remove them.
func refuseMirrorResource(typ kmsg.ConfigResourceType, name string) configRefusal {
	if typ != resourceMirror {
		return configRefusal{}
	}
	return configRefusal{code: kerr.InvalidRequest.Code, message: kmsg.StringPtr(fmt.Sprintf("configuration of mirror %q: change it with IncrementalAlterConfigs", name))}
}

// refuseHeld refuses a change of a setting that is held on a read-only topic.
func refuseHeld(t *mirror.Topic, setting string) configRefusal {
	return configRefusal{refusedCode, kmsg.StringPtr(fmt.Sprintf("%s is held while mirroring: %s", setting, *refusal(t))), t}
}

// always is the whole function of an entry that must see every request.
func always(*Handlers, *mirror.Topics, int16) bool { return true }

package handlers

import (
	"fmt"
	"maps"
)

// The API keys of the mirror RPCs, where no configuration moves them. Each comes from KIP-1279 or, where the KIP says
// TBD, from its authors; 94 is UnregisterController since Kafka 4.4, so CreateMirror is 107.
const (
	KeyAddTopicsToMirror      int16 = 95
	KeyRemoveTopicsFromMirror int16 = 96
	KeyLastMirroredOffsets    int16 = 97
	KeyListMirrors            int16 = 98
	KeyDescribeMirrors        int16 = 99
	KeyReadMirrorStates       int16 = 100
	KeyWriteMirrorStates      int16 = 101
	KeyPauseMirrorTopics      int16 = 102
	KeyResumeMirrorTopics     int16 = 103
	KeyDeleteMirror           int16 = 104
	KeyCreateMirror           int16 = 107
)

// mirrorKeys names the keys above, as the configuration does.
var mirrorKeys = map[string]int16{
	"AddTopicsToMirror":      KeyAddTopicsToMirror,
	"RemoveTopicsFromMirror": KeyRemoveTopicsFromMirror,
	"LastMirroredOffsets":    KeyLastMirroredOffsets,
	"ListMirrors":            KeyListMirrors,
	"DescribeMirrors":        KeyDescribeMirrors,
	"ReadMirrorStates":       KeyReadMirrorStates,
	"WriteMirrorStates":      KeyWriteMirrorStates,
	"PauseMirrorTopics":      KeyPauseMirrorTopics,
	"ResumeMirrorTopics":     KeyResumeMirrorTopics,
	"DeleteMirror":           KeyDeleteMirror,
	"CreateMirror":           KeyCreateMirror,
}

// KeyTable moves mirror RPCs to other API keys: name of the RPC to key. What it does not name stays where it is; nil
// moves nothing.
type KeyTable map[string]int16

// DefaultKeys returns the API key of every mirror RPC by name.
func DefaultKeys() KeyTable { return maps.Clone(KeyTable(mirrorKeys)) }

// validate refuses names that are no mirror RPC and keys that are taken, by Kafka or by another mirror RPC.
func (t KeyTable) validate() error {
	for name := range t {
		if _, ok := mirrorKeys[name]; !ok {
			return fmt.Errorf("api keys: %q is not a mirror RPC", name)
		}
	}
	taken := make(map[int16]string, len(mirrorKeys))
	for name := range mirrorKeys {
		key := t.key(name)
		if key < 0 {
			return fmt.Errorf("api keys: %s has the negative key %d", name, key)
		}
		if other, ok := taken[key]; ok {
			return fmt.Errorf("api keys: %s and %s both have key %d", name, other, key)
		}
		if entry, ok := registry[key]; ok && mirrorKeys[entry.name] == 0 {
			return fmt.Errorf("api keys: %s cannot have key %d, which is Kafka's %s", name, key, entry.name)
		}
		taken[key] = name
	}
	return nil
}

// key returns the API key of the mirror RPC called name.
func (t KeyTable) key(name string) int16 {
	if key, ok := t[name]; ok {
		return key
	}
	return mirrorKeys[name]
}

package handlers

import (
	"bytes"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/mirror"
	"github.com/mirrorgate/mirrorgate/proxy"
)

// DescribeConfigs: v0–v4
//
// Resources of type 64 are mirrors, which the destination does not know. Settings of brokers that hold addresses of the
// destination lose their values: clients could not use them, and must not see them.
//   - v1+: synonyms, which hold the same values.
func init() {
	register(32, entry{
		whole:   always,
		request: (*Handlers).describeConfigs,
		response: func(*Handlers, *mirror.Topics, int16) proxy.Rewrite {
			return nil // every decision has its own
		},
	})
}

func (h *Handlers) describeConfigs(r *request) proxy.Decision {
	req := kmsg.NewPtrDescribeConfigsRequest()
	if err := decode(req, r.Version, r.body()); err != nil {
		return undecodable(err)
	}
	for _, resource := range req.Resources {
		if resource.ResourceType == resourceMirror {
			return h.describeMirrorConfigs(r, req)
		}
	}
	d := forward(r)
	if d.Forward != nil {
		d.Rewrite = withholdAddresses(req, d.Rewrite)
	}
	return d
}

// addressSettings are the settings of a broker that hold addresses, by the end of their names, as plugins and
// listeners put prefixes before them. Names that are only like them cost a client a value at worst.
var addressSettings = [][]byte{
	[]byte("listeners"), []byte("host.name"), []byte("quorum.voters"), []byte("bootstrap.servers"), []byte("zookeeper.connect"),
}

func holdsAddress(name string) bool {
	for _, suffix := range addressSettings {
		if bytes.HasSuffix([]byte(name), suffix) {
			return true
		}
	}
	return false
}

// withholdAddresses returns a rewrite that runs next, if there is one, and nulls the values of address settings.
// Most answers hold no such setting and are not decoded for it.
func withholdAddresses(req kmsg.Request, next proxy.Rewrite) proxy.Rewrite {
	return func(frame []byte) ([]byte, error) {
		found := false
		for _, suffix := range addressSettings {
			found = found || bytes.Contains(frame, suffix)
		}
		if found {
			var err error
			if frame, err = mergeResponse(frame, req.ResponseKind(), nullAddresses); err != nil {
				return nil, err
			}
		}
		if next == nil {
			return frame, nil
		}
		return next(frame)
	}
}

func nullAddresses(resp kmsg.Response) {
	for i := range resp.(*kmsg.DescribeConfigsResponse).Resources {
		resource := &resp.(*kmsg.DescribeConfigsResponse).Resources[i]
		if resource.ResourceType != kmsg.ConfigResourceTypeBroker {
			continue
		}
		for j := range resource.Configs {
			config := &resource.Configs[j]
			if holdsAddress(config.Name) {
				config.Value = nil
			}
			for k := range config.ConfigSynonyms {
				if holdsAddress(config.Name) || holdsAddress(config.ConfigSynonyms[k].Name) {
					config.ConfigSynonyms[k].Value = nil
				}
			}
		}
	}
}

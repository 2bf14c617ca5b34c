package handlers

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/mirror"
	"github.com/mirrorgate/mirrorgate/proxy"
)

// IncrementalAlterConfigs: v0–v1
//
// Read-only topics are refused if a setting that is held for mirroring is among the changes. Resources of type 64 are
// mirrors.
func init() {
	register(keyIncrementalAlter, entry{whole: always, request: (*Handlers).incrementalAlterConfigs})
}

func (h *Handlers) incrementalAlterConfigs(r *request) proxy.Decision {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	if err := decode(req, r.Version, r.body()); err != nil {
		return undecodable(err)
	}
	var kept []kmsg.IncrementalAlterConfigsRequestResource
	var parts []kmsg.IncrementalAlterConfigsResponseResource
	var refusals []configRefusal
	mirrors := false
	for _, resource := range req.Resources {
		if resource.ResourceType == resourceMirror {
			mirrors = true
			continue
		}
		refused := refuseIncrementalAlterConfigs(r.topics, resource)
		if refused.code == 0 {
			kept = append(kept, resource)
			continue
		}
		part := kmsg.NewIncrementalAlterConfigsResponseResource()
		part.ResourceType, part.ResourceName = resource.ResourceType, resource.ResourceName
		parts, refusals = append(parts, part), append(refusals, refused)
	}
	merge := func(resp kmsg.Response, why verdict) {
		for i, refused := range refusals {
			parts[i].ErrorCode, parts[i].ErrorMessage = refused.by(why)
		}
		resp.(*kmsg.IncrementalAlterConfigsResponse).Resources = append(resp.(*kmsg.IncrementalAlterConfigsResponse).Resources, parts...)
	}
	if mirrors {
		return h.alterMirrorConfigs(r, req, kept, topicsOf(refusals), merge)
	}
	req.Resources = kept
	return h.split(r, req, len(kept), len(parts), topicsOf(refusals), merge)
}

func refuseIncrementalAlterConfigs(topics *mirror.Topics, resource kmsg.IncrementalAlterConfigsRequestResource) configRefusal {
	if resource.ResourceType == kmsg.ConfigResourceTypeTopic {
		if t := readOnly(topics, resource.ResourceName); t != nil {
			for _, config := range resource.Configs {
				if held(config.Name) {
					return refuseHeld(t, config.Name)
				}
			}
		}
	}
	return configRefusal{}
}

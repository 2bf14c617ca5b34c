package handlers

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/mirror"
	"github.com/mirrorgate/mirrorgate/proxy"
)

// AlterConfigs: v0–v2
//
// Read-only topics are refused whatever the settings, as this request resets all those that it does not name. Resources
// of type 64 are mirrors.
func init() {
	register(keyAlterConfigs, entry{whole: always, request: (*Handlers).alterConfigs})
}

func (h *Handlers) alterConfigs(r *request) proxy.Decision {
	req := kmsg.NewPtrAlterConfigsRequest()
	if err := decode(req, r.Version, r.body()); err != nil {
		return undecodable(err)
	}
	var kept []kmsg.AlterConfigsRequestResource
	var parts []kmsg.AlterConfigsResponseResource
	var refusals []configRefusal
	for _, resource := range req.Resources {
		refused := refuseAlterConfigs(r.topics, resource)
		if refused.code == 0 {
			kept = append(kept, resource)
			continue
		}
		part := kmsg.NewAlterConfigsResponseResource()
		part.ResourceType, part.ResourceName = resource.ResourceType, resource.ResourceName
		parts, refusals = append(parts, part), append(refusals, refused)
	}
	req.Resources = kept
	return h.split(r, req, len(kept), len(parts), topicsOf(refusals), func(resp kmsg.Response, why verdict) {
		for i, refused := range refusals {
			parts[i].ErrorCode, parts[i].ErrorMessage = refused.by(why)
		}
		resp.(*kmsg.AlterConfigsResponse).Resources = append(resp.(*kmsg.AlterConfigsResponse).Resources, parts...)
	})
}

func refuseAlterConfigs(topics *mirror.Topics, resource kmsg.AlterConfigsRequestResource) configRefusal {
	if resource.ResourceType == kmsg.ConfigResourceTypeTopic {
		if t := readOnly(topics, resource.ResourceName); t != nil {
			return refuseHeld(t, "every setting that AlterConfigs resets")
		}
	}
	return refuseMirrorResource(resource.ResourceType, resource.ResourceName)
}

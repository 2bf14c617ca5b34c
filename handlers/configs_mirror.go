package handlers

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/mirror"
	"github.com/mirrorgate/mirrorgate/proxy"
)

// The configuration of a mirror is a resource of type 64 in DescribeConfigs and IncrementalAlterConfigs. Reading it needs
// DESCRIBE on the destination cluster, changing it ALTER. Other resources of the same request go to the destination over
// the client's own connection.

// work answers a request on a worker with what answer returns.
func (h *Handlers) work(r *request, answer func(ctx context.Context, up proxy.Upstream) (kmsg.Response, error)) proxy.Decision {
	hd, client, name := r.Header, r.client, nameOf(r.Key)
	h.metrics.local.WithLabelValues(name).Inc()
	return proxy.Decision{Work: func(ctx context.Context, up proxy.Upstream) ([]byte, error) {
		resp, err := answer(ctx, up)
		if err != nil {
			return nil, h.fail(client, h.entries[hd.Key], hd, err)
		}
		resp.SetVersion(hd.Version)
		return encodeResponse(hd.CorrelationID, resp), nil
	}}
}

// describeMirrorConfigs answers a DescribeConfigs with mirrors among its resources.
func (h *Handlers) describeMirrorConfigs(r *request, req *kmsg.DescribeConfigsRequest) proxy.Decision {
	return h.work(r, func(ctx context.Context, up proxy.Upstream) (kmsg.Response, error) {
		forbidden, err := authorizeCluster(ctx, up, kmsg.ACLOperationDescribe)
		if err != nil {
			return nil, err
		}
		var described []kmsg.DescribeConfigsResponseResource
		var kept []kmsg.DescribeConfigsRequestResource
		for _, resource := range req.Resources {
			if resource.ResourceType != resourceMirror {
				kept = append(kept, resource)
				continue
			}
			described = append(described, h.describeMirrorConfig(ctx, resource, req, forbidden))
		}
		resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
		if len(kept) > 0 {
			rest := *req
			rest.Resources = kept
			if resp, err = roundTrip[*kmsg.DescribeConfigsResponse](ctx, up, &rest); err != nil {
				return nil, err
			}
			nullAddresses(resp)
		}
		resp.Resources = append(resp.Resources, described...)
		return resp, nil
	})
}

func (h *Handlers) describeMirrorConfig(ctx context.Context, resource kmsg.DescribeConfigsRequestResource, req *kmsg.DescribeConfigsRequest,
	refused *mirror.Error,
) kmsg.DescribeConfigsResponseResource {
	out := kmsg.NewDescribeConfigsResponseResource()
	out.ResourceType, out.ResourceName = resource.ResourceType, resource.ResourceName
	var entries []mirror.ConfigEntry
	if refused == nil {
		var err error
		entries, err = h.engine.MirrorConfig(ctx, resource.ResourceName)
		refused = h.refusal("DescribeConfigs", resource.ResourceName, err)
	}
	if out.ErrorCode, out.ErrorMessage = codeOf(refused), messageOf(refused); refused != nil {
		return out
	}
	for _, entry := range entries {
		if resource.ConfigNames == nil || slices.Contains(resource.ConfigNames, entry.Name) {
			out.Configs = append(out.Configs, mirrorConfigEntry(entry, req))
		}
	}
	return out
}

func mirrorConfigEntry(entry mirror.ConfigEntry, req *kmsg.DescribeConfigsRequest) kmsg.DescribeConfigsResponseResourceConfig {
	out := kmsg.NewDescribeConfigsResponseResourceConfig()
	out.Name, out.Value, out.IsSensitive = entry.Name, entry.Value, entry.Secret
	out.IsDefault, out.Source = !entry.Given, kmsg.ConfigSourceDefaultConfig
	if entry.Given {
		out.Source = kmsg.ConfigSourceDynamicBrokerConfig // of the cluster, changed at run time: the nearest that there is
	}
	switch {
	case entry.Secret:
		out.ConfigType = kmsg.ConfigTypePassword
	case entry.List:
		out.ConfigType = kmsg.ConfigTypeList
	default:
		out.ConfigType = kmsg.ConfigTypeString
	}
	if req.IncludeDocumentation {
		out.Documentation = kmsg.StringPtr(entry.Doc)
	}
	return out
}

// alterMirrorConfigs answers an IncrementalAlterConfigs with mirrors among its resources. kept are the others that may
// go to the destination; refused and merge are those of split.
func (h *Handlers) alterMirrorConfigs(r *request, req *kmsg.IncrementalAlterConfigsRequest, kept []kmsg.IncrementalAlterConfigsRequestResource,
	refused []*mirror.Topic, merge func(kmsg.Response, verdict),
) proxy.Decision {
	mirrors := slices.DeleteFunc(slices.Clone(req.Resources), func(resource kmsg.IncrementalAlterConfigsRequestResource) bool {
		return resource.ResourceType != resourceMirror
	})
	return h.work(r, func(ctx context.Context, up proxy.Upstream) (kmsg.Response, error) {
		forbidden, err := authorizeCluster(ctx, up, kmsg.ACLOperationAlter)
		if err != nil {
			return nil, err
		}
		why := verdictOf(r.Key, kmsg.NewPtrMetadataResponse())
		if len(refused) > 0 {
			rights, err := roundTrip[*kmsg.MetadataResponse](ctx, up, rightsRequest(refused))
			if err != nil {
				return nil, err
			}
			why = verdictOf(r.Key, rights)
		}
		resp := req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
		if len(kept) > 0 {
			rest := *req
			rest.Resources = kept
			if resp, err = roundTrip[*kmsg.IncrementalAlterConfigsResponse](ctx, up, &rest); err != nil {
				return nil, err
			}
		}
		merge(resp, why)
		for _, resource := range mirrors {
			resp.Resources = append(resp.Resources, h.alterMirrorConfig(ctx, resource, req.ValidateOnly, forbidden))
		}
		return resp, nil
	})
}

func (h *Handlers) alterMirrorConfig(ctx context.Context, resource kmsg.IncrementalAlterConfigsRequestResource, validateOnly bool,
	refused *mirror.Error,
) kmsg.IncrementalAlterConfigsResponseResource {
	changes := make([]mirror.ConfigChange, 0, len(resource.Configs))
	for _, c := range resource.Configs {
		if refused == nil {
			refused = h.refuseSecret(c.Name, c.Value)
		}
	}
	if refused == nil {
		for _, c := range resource.Configs {
			changes = append(changes, mirror.ConfigChange{Name: c.Name, Op: mirror.ConfigOp(c.Op), Value: c.Value})
		}
		err := h.engine.AlterMirror(ctx, resource.ResourceName, changes, validateOnly)
		refused = h.refusal("IncrementalAlterConfigs", resource.ResourceName, err)
	}
	out := kmsg.NewIncrementalAlterConfigsResponseResource()
	out.ResourceType, out.ResourceName = resource.ResourceType, resource.ResourceName
	out.ErrorCode, out.ErrorMessage = codeOf(refused), messageOf(refused)
	return out
}

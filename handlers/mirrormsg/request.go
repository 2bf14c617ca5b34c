package mirrormsg

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// requestWith sends req through r and returns the response as the type that it is.
func requestWith[R kmsg.Response](ctx context.Context, r kmsg.Requestor, req kmsg.Request) (R, error) {
	var none R
	response, err := r.Request(ctx, req)
	if err != nil {
		return none, err
	}
	typed, ok := response.(R)
	if !ok {
		return none, fmt.Errorf("the response is a %T, not a %T", response, none)
	}
	return typed, nil
}

// RequestForKey returns a new request of the type that has key by default, or nil if no mirror RPC has it. For key 19 it
// returns this package's CreateTopicsRequest.
func RequestForKey(key int16) kmsg.Request {
	switch key {
	case createTopicsKey:
		return NewPtrCreateTopicsRequest()
	case AddTopicsToMirrorKey:
		return NewPtrAddTopicsToMirrorRequest()
	case RemoveTopicsFromMirrorKey:
		return NewPtrRemoveTopicsFromMirrorRequest()
	case LastMirroredOffsetsKey:
		return NewPtrLastMirroredOffsetsRequest()
	case ListMirrorsKey:
		return NewPtrListMirrorsRequest()
	case DescribeMirrorsKey:
		return NewPtrDescribeMirrorsRequest()
	case ReadMirrorStatesKey:
		return NewPtrReadMirrorStatesRequest()
	case WriteMirrorStatesKey:
		return NewPtrWriteMirrorStatesRequest()
	case PauseMirrorTopicsKey:
		return NewPtrPauseMirrorTopicsRequest()
	case ResumeMirrorTopicsKey:
		return NewPtrResumeMirrorTopicsRequest()
	case DeleteMirrorKey:
		return NewPtrDeleteMirrorRequest()
	case CreateMirrorKey:
		return NewPtrCreateMirrorRequest()
	}
	return nil
}

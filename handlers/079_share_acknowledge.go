package handlers

// ShareAcknowledge: v0–v2
//
// Topic IDs in request and response, NodeEndpoints in the response.
func init() { register(79, entry{}) }

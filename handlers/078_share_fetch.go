package handlers

// ShareFetch: v0–v2
//
// Topic IDs in request (forgotten topics too) and response, NodeEndpoints in the response. Filler batches are taken out
// as in Fetch; their offsets stay among the acquired ones, and clients acknowledge offsets without a record as gaps.
func init() { register(78, entry{}) }

package handlers

const keyFetch = 1

// Fetch: v4–v18
//
// Filler batches are taken out of the response (fetch_fillers.go). Large responses are not held (fetch_stream.go).
//   - v0–v3: not offered. They get records in the formats before v2, which have no producer ID: fillers could not be
//     told from records. Kafka 4.0 dropped them too.
//   - v13+: topic IDs in request (forgotten topics too) and response.
//   - v16+: NodeEndpoints in the response (KIP-951).
func init() { register(keyFetch, entry{min: 4, stream: (*Handlers).streamFetch}) }

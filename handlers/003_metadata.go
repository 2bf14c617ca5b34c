package handlers

// Metadata: v0–v13
//
// Brokers get the gateway's addresses. The controller ID stays: it names one of the brokers.
//   - v10+: topic IDs in response and request. Until v11 no client may ask by ID, but the field is there.
func init() { register(3, entry{}) }

package handlers

// DescribeCluster: v0–v2
//
// Brokers get the gateway's addresses.
//   - v1+: EndpointType. Brokers answer for controllers with an error and no address.
func init() { register(60, entry{}) }

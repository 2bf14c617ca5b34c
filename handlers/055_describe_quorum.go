package handlers

// DescribeQuorum: v0–v2
//
//   - v2+: Nodes with the listeners of controllers. Clients cannot reach these through the gateway and must not see
//     them: the lists are emptied, the nodes stay.
func init() { register(55, entry{}) }

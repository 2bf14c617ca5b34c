//go:build !clients

package clients

// theScope is the quick part, for CI.
var theScope = scope{
	brokers: 2, records: 600, jobs: 3,
	pick: func(c client) bool { return c.quick },
	checks: func(c client) []string {
		if c.checks != nil {
			return c.checks
		}
		return quickChecks
	},
}

// quickChecks are those of the quick part.
var quickChecks = []string{"metadata", "coordinator", "none", "zstd", "group", "txn", "configs", leaderCheck}

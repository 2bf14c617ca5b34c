//go:build clients

package clients

// theScope is everything.
var theScope = scope{
	brokers: 3, records: 2000, jobs: 2, gaps: true,
	pick: func(client) bool { return true },
	checks: func(c client) []string {
		if c.checks != nil {
			return c.checks
		}
		return commonChecks
	},
}

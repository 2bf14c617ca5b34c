package mirror

import "time"

// patience ends a test that hangs. It is for nothing else: a machine that stands still for some seconds must not fail a test.
const patience = 3 * time.Minute

package skips

import "testing"

func TestPasses(t *testing.T) { t.Run("sub", func(*testing.T) {}) }

func TestSkipped(t *testing.T) { t.Skip("for strict to find") }

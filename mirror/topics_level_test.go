package mirror

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEpochLevelOfAMirrorOfAMirror: its clients come from a gateway that shows higher epochs than a cluster has.
func TestEpochLevelOfAMirrorOfAMirror(t *testing.T) {
	require.Equal(t, int8(1), EpochLevel(-1))
	require.Equal(t, int8(1), EpochLevel(70_000))
	first := EpochBaseOf(EpochLevel(5)) + 9
	require.Equal(t, int8(2), EpochLevel(first))
	require.Greater(t, EpochBaseOf(EpochLevel(first)), first)
}

package broker

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLacksRight(t *testing.T) {
	require.NoError(t, LacksRight(nil, "READ"))
	other := errors.New("other")
	require.Equal(t, other, LacksRight(other, "READ"))
	for _, err := range unauthorized {
		lacking := LacksRight(fmt.Errorf("fetching: %w", err), "READ on topic %s", "t")
		require.ErrorIs(t, lacking, err)
		require.ErrorContains(t, lacking, "the gateway's user needs READ on topic t")
	}
}

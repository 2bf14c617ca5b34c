package mirror

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/mirrorgate/mirrorgate/store"
	"github.com/mirrorgate/mirrorgate/test/certs"
)

// A mirror whose configuration this gateway cannot use has no source, but its topics can be failed over; and it has its source
// again by itself once the configuration can be used.
func TestUnusableConfiguration(t *testing.T) {
	w := newWorld(t)
	authority, file := certs.New(t, t.TempDir()), filepath.Join(t.TempDir(), "truststore.pem")
	w.createMirror("m")
	w.sourceTopic("stays", 1)
	w.sourceTopic("goes", 1)
	w.add("stays", "goes")
	w.m.Close()
	require.NoError(t, w.state.UpdateMany(w.context(), []store.Update{{Key: store.MirrorKey("m"), Fn: store.Typed(func(now *store.Mirror) (*store.Mirror, error) {
		now.Config["security.protocol"], now.Config["ssl.truststore.location"] = "SSL", file
		return now, nil
	})}}))
	w.m = w.manager()

	results, err := w.m.AddTopics(w.context(), refs("m", "another"))
	require.NoError(t, err)
	w.refused(results[0].Err, kerr.InvalidConfig, file)
	results, err = w.m.RemoveTopics(w.context(), "m", refs("", "goes"))
	require.NoError(t, err)
	require.Nil(t, results[0].Err)
	require.False(t, w.m.Topics().ByName("goes").ReadOnly)

	trusted, err := os.ReadFile(authority.File)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, trusted, 0o600))
	w.m.records.poke()
	w.eventually(func() bool { run := w.m.mirror("m"); return run != nil && run.config().unusable == nil }, "it is tried again")
	w.eventually(func() bool { return len(w.replication("m").runs()) == 1 }, "the other topic goes on")
	require.Nil(t, w.m.checkMirror("m"))
}

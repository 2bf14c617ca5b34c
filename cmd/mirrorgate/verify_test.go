package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorgate/mirrorgate/verify"
)

// verifyCluster is a fake cluster whose topic t has these values.
func verifyCluster(t *testing.T, values ...string) string {
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	require.NoError(t, err)
	t.Cleanup(fake.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(fake.ListenAddrs()...), kgo.DefaultProduceTopic("t"))
	require.NoError(t, err)
	defer client.Close()
	for _, v := range values {
		require.NoError(t, client.ProduceSync(context.Background(), &kgo.Record{Value: []byte(v), Timestamp: time.UnixMilli(1)}).FirstErr())
	}
	return fake.ListenAddrs()[0]
}

func TestVerifyExitCodes(t *testing.T) {
	source, same, other := verifyCluster(t, "a", "b"), verifyCluster(t, "a", "b"), verifyCluster(t, "a", "c")
	short := verifyCluster(t, "a")
	file := filepath.Join(t.TempDir(), "client.properties")
	require.NoError(t, os.WriteFile(file, []byte("bootstrap.servers="+same+"\ngroup.id=x\n"), 0o600))
	insecure := filepath.Join(t.TempDir(), "typo.properties")
	require.NoError(t, os.WriteFile(insecure, []byte("security.protocl=SSL\n"), 0o600))
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"--source " + source + " --destination " + same + " --topics t", 0, "equal; 2 records in 1 partitions"},
		{"--source " + source + " --destination-config " + file + " --topics t --wait --timeout 3m", 0, "equal; 2 records"},
		{"--source " + source + " --destination " + same + " --topics t --batches", 0, "every batch is verbatim"},
		{"--source " + source + " --destination " + other + " --topics t", 1, "the logs differ"},
		{"--source " + source + " --destination " + other + " --topics t --to 1", 0, "equal; 1 records"},
		{"--source " + source + " --destination " + other + " --topics t --batches", 1, "built anew"},
		{"--source " + source + " --destination " + same + " --topics nowhere", 2, "neither side"},
		{"--source " + source + " --destination 127.0.0.1:1 --topics t", 2, "connection refused"},
		{"--source " + source + " --destination " + short + " --topics t --wait --timeout 300ms", 2, "--timeout 300ms"},
		{"--destination " + same + " --topics t", 2, "--source is missing"},
		{"--source " + source + " --destination " + same, 2, "--topics is missing"},
		{"--source " + source + " --destination " + same + " --topics t --partitions x", 2, `"x" is neither`},
		{"--source " + source + " --destination " + same + " --topics t --partitions 1", 2, "no partition 1"},
		{"--source " + source + " --destination " + same + " --topics t --from 5 --to 5", 2, "no range"},
		{"--source " + source + " --destination " + same + " --topics t --source-config " + insecure, 2, "security.protocl"},
		{"--source " + source + " --destination " + same + " --topics t --sample 50% --seed 7", 0, "equal in a sample of 50 % (--seed 7): 2 of 2 offsets; 2 records"},
		{"--source " + source + " --destination " + other + " --topics t --sample 0.1", 1, "--seed "},
		{"--source " + source + " --destination " + same + " --topics t --batches --sample 1%", 0, "every batch is verbatim in a sample of 1 %"},
		{"--source " + source + " --destination " + same + " --topics t --sample 100%", 2, "no percentage"},
		{"--source " + source + " --destination " + same + " --topics t --seed 7", 2, "--sample is missing"},
		{"--nonsense", 2, "nonsense"},
	} {
		var out, errs bytes.Buffer
		code := run(t.Context(), append([]string{"verify"}, strings.Fields(c.args)...), &out, &errs)
		require.Equal(t, c.code, code, "%s\n%s\n%s", c.args, &out, &errs)
		require.Contains(t, out.String()+errs.String(), c.says, c.args)
	}
}

func TestVerifyJSON(t *testing.T) {
	var out, errs bytes.Buffer
	source, other := verifyCluster(t, "a", "<b>"), verifyCluster(t, "a", "c")
	require.Equal(t, 1, run(t.Context(), []string{"verify", "--source", source, "--destination", other, "--topics", "t", "--json"}, &out, &errs))
	var r verify.Report
	require.NoError(t, json.Unmarshal(out.Bytes(), &r), out.String())
	require.Equal(t, []verify.Difference{{Topic: "t", Offset: 1, Field: "value", Source: `"<b>"`, Destination: `"c"`}}, r.First)
}

func TestParsePartitions(t *testing.T) {
	got, err := parsePartitions("0,3-5, 9")
	require.NoError(t, err)
	require.Equal(t, []int32{0, 3, 4, 5, 9}, got)
	for _, bad := range []string{",", "-", "1-", "-1", "5-3", "a", "1,,2", "0-99999999999", "0-2000000000"} {
		_, err := parsePartitions(bad)
		require.Error(t, err, bad)
	}
}

package replication

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/mirrorgate/mirrorgate/mirror/cluster"
)

// An empty answer makes a gap only where the offsets are on the broker's own disk: a mirror that took a remote tier that
// is away for an empty log would lose what is in there.
func TestRemoteStorage(t *testing.T) {
	for _, test := range []struct {
		name   string
		opts   []kgo.Opt
		local  int64 // what the broker says its own disk begins with, -1 if it does not know the question
		tiered string
		want   string
	}{
		{name: "all local", local: 0},
		{name: "begins at the position", local: 100},
		{name: "remote", local: 101, want: "in its remote storage (its own disk begins at offset 101)"},
		{name: "no answer, not tiered", local: -1},
		{name: "no answer, tiered", local: -1, tiered: "true", want: "may be in remote storage (remote.storage.enable)"},
		{name: "old protocol, tiered", opts: []kgo.Opt{kgo.MaxVersions(kversion.V2_8_0())}, local: 0, tiered: "true", want: "may be in remote storage"},
	} {
		t.Run(test.name, func(t *testing.T) {
			fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
			require.NoError(t, err)
			defer fake.Close()
			client, err := kgo.NewClient(append(test.opts, kgo.SeedBrokers(fake.ListenAddrs()...))...)
			require.NoError(t, err)
			defer client.Close()
			fake.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
				fake.KeepControl()
				asked := req.(*kmsg.ListOffsetsRequest)
				require.EqualValues(t, -4, asked.Topics[0].Partitions[0].Timestamp)
				resp := asked.ResponseKind().(*kmsg.ListOffsetsResponse)
				p := kmsg.NewListOffsetsResponseTopicPartition()
				p.Offset = test.local
				resp.Topics = []kmsg.ListOffsetsResponseTopic{{Topic: "t", Partitions: []kmsg.ListOffsetsResponseTopicPartition{p}}}
				return resp, nil, true
			})
			fake.ControlKey(int16(kmsg.DescribeConfigs), func(req kmsg.Request) (kmsg.Response, error, bool) {
				fake.KeepControl()
				resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
				r := kmsg.NewDescribeConfigsResponseResource()
				if test.tiered != "" {
					c := kmsg.NewDescribeConfigsResponseResourceConfig()
					c.Name, c.Value = "remote.storage.enable", &test.tiered
					r.Configs = append(r.Configs, c)
				}
				resp.Resources = append(resp.Resources, r)
				return resp, nil, true
			})
			v := &sourceView{client: client}
			why, err := v.remote(t.Context(), &offsetCheck{key: cluster.TopicPartition{Topic: "t", Partition: 0}, end: 100, leader: evLeader{broker: 0, epoch: -1}})
			require.NoError(t, err)
			if test.want == "" {
				require.Empty(t, why)
			} else {
				require.Contains(t, why, test.want)
			}
		})
	}
}

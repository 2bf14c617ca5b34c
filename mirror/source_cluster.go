package mirror

import (
	"context"
	"fmt"

	"github.com/mirrorgate/mirrorgate/mirror/cluster"
	"github.com/mirrorgate/mirrorgate/mirror/replication"
)

// sameCluster refuses a source whose cluster ID is not the mirror's: another cluster took its place at the address. What is synced
// beside the data (groups, ACLs, topic configs, new topics) is read first, then this is asked, then it is acted upon. So
// whatever was read before an answer that names the mirror's cluster is of that cluster, unless two clusters take turns.
func (r *mirrorRun) sameCluster(ctx context.Context) error {
	_, id, err := cluster.DescribeTopics(ctx, r.source)
	if err != nil {
		return fmt.Errorf("source: %w", err)
	}
	rec, _ := r.m.records.Mirror(r.name)
	if id != "" && rec.SourceClusterID != "" && id != rec.SourceClusterID {
		return &replication.OtherCluster{Want: rec.SourceClusterID, Got: id}
	}
	return nil
}

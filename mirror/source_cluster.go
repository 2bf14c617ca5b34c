package mirror

import (
	"context"
	"fmt"
)

// sameCluster refuses a source whose cluster ID is not the mirror's: another cluster took its place at the address. What is synced
// beside the data (groups, ACLs, topic configs, new topics) is read first, then this is asked, then it is acted upon. So
// whatever was read before an answer that names the mirror's cluster is of that cluster, unless two clusters take turns.
func (r *mirrorRun) sameCluster(ctx context.Context) error {
	_, id, err := describeTopics(ctx, r.source)
	if err != nil {
		return fmt.Errorf("source: %w", err)
	}
	rec, _ := r.m.records.Mirror(r.name)
	if id != "" && rec.SourceClusterID != "" && id != rec.SourceClusterID {
		return &otherCluster{want: rec.SourceClusterID, got: id}
	}
	return nil
}

// otherCluster: the cluster at the source's address is not the one that is mirrored.
type otherCluster struct{ want, got string }

func (e *otherCluster) Error() string { return e.reason() }

func (e *otherCluster) reason() string {
	return fmt.Sprintf("diverged: the cluster at the source's address has cluster ID %s, mirrored was cluster %s; way out: have bootstrap.servers lead to cluster %s again and set the partitions to PREPARING, or remove the topics from the mirror (they keep what was mirrored); to mirror the other cluster, also delete this mirror and the topics at the destination, and make a mirror anew",
		e.got, e.want, e.want)
}

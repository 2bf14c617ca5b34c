package replication

import "fmt"

// OtherCluster: the cluster at the source's address is not the one that is mirrored.
type OtherCluster struct{ Want, Got string }

func (e *OtherCluster) Error() string { return e.Reason() }

func (e *OtherCluster) Reason() string {
	return fmt.Sprintf("diverged: the cluster at the source's address has cluster ID %s, mirrored was cluster %s; way out: have bootstrap.servers lead to cluster %s again and resume the topics, or remove the topics from the mirror (they keep what was mirrored); to mirror the other cluster, also delete this mirror and the topics at the destination, and make a mirror anew",
		e.Got, e.Want, e.Want)
}

package harness

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
)

// Controllers answer a change of ACLs when they have written it; brokers go by it a moment later. So who changes some and at once does
// what hangs on them would see, now and then, the rights of before.

// AddACLs adds ACLs and waits until the broker that is asked goes by them. There must be one broker.
func AddACLs(t testing.TB, admin *kadm.Client, acls *kadm.ACLBuilder) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), leastPatience)
	defer cancel()
	results, err := admin.CreateACLs(ctx, acls)
	for _, r := range results {
		err = errors.Join(err, r.Err)
	}
	if err != nil {
		t.Fatalf("adding ACLs: %v", err)
	}
	awaitACLs(t, admin, acls, true)
}

// RemoveACLs removes ACLs, waits until the broker that is asked does not go by them any more, and returns how many there were.
func RemoveACLs(t testing.TB, admin *kadm.Client, acls *kadm.ACLBuilder) (removed int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), leastPatience)
	defer cancel()
	results, err := admin.DeleteACLs(ctx, acls)
	for _, r := range results {
		err = errors.Join(err, r.Err)
		removed += len(r.Deleted)
	}
	if err != nil {
		t.Fatalf("removing ACLs: %v", err)
	}
	awaitACLs(t, admin, acls, false)
	return removed
}

// awaitACLs: a broker describes the ACLs by which it judges.
func awaitACLs(t testing.TB, admin *kadm.Client, acls *kadm.ACLBuilder, there bool) {
	t.Helper()
	Eventually(t, leastPatience, "the broker knows the ACLs", func(ctx context.Context) error {
		results, err := admin.DescribeACLs(ctx, acls)
		for _, r := range results {
			if err = errors.Join(err, r.Err); (len(r.Described) > 0) != there {
				err = errors.Join(err, fmt.Errorf("it has %d of %s %v", len(r.Described), r.Type, r.Operation))
			}
		}
		return err
	})
}

package security

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/store"
	"github.com/mirrorgate/mirrorgate/test/integration/harness"
	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

// What is tested is what docs/security.md says: its tables are read here.

// right is a row of a table of least rights.
type right struct {
	side      string // source or destination
	operation kadm.ACLOperation
	resource  string // as it is in the table
	// where it shows that the right is missing, and the words.
	where, words string
}

func (r right) String() string { return fmt.Sprintf("%s %s %s", r.side, r.operation, r.resource) }

// rightsPrefix begins the names of all topics and groups of the test: TOPIC and GROUP of the tables are a pattern.
const rightsPrefix = "rights"

// acl is the one ACL that gives the right to a user.
func (r right) acl(t *testing.T, user string) *kadm.ACLBuilder {
	t.Helper()
	acls, pattern := kadm.NewACLs(), kadm.ACLPatternLiteral
	switch r.resource {
	case "topic `" + store.DefaultTopic + "`":
		acls = acls.Topics(store.DefaultTopic)
	case "topic TOPIC":
		acls, pattern = acls.Topics(rightsPrefix), kadm.ACLPatternPrefixed
	case "group GROUP":
		acls, pattern = acls.Groups(rightsPrefix), kadm.ACLPatternPrefixed
	case "cluster":
		acls = acls.Clusters()
	default:
		t.Fatalf("docs/security.md: %q is no resource that the test knows", r.resource)
	}
	return acls.ResourcePatternType(pattern).Operations(r.operation).Allow("User:" + user).AllowHosts()
}

// table returns the rows of the table in docs/security.md below a heading that begins so, without its first two lines.
func table(t *testing.T, heading string) (rows [][]string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/security.md")
	must(t, err)
	_, rest, found := strings.Cut(string(text), "\n### "+heading)
	if !found {
		t.Fatalf("docs/security.md has no heading %q", heading)
	}
	for line := range strings.Lines(rest) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "|"):
			var cells []string
			for _, cell := range strings.Split(strings.Trim(line, "|"), "|") {
				cells = append(cells, strings.TrimSpace(cell))
			}
			rows = append(rows, cells)
		case len(rows) > 0:
			if len(rows) < 3 {
				t.Fatalf("docs/security.md: the table below %q is empty", heading)
			}
			return rows[2:]
		}
	}
	t.Fatalf("docs/security.md: there is no table below %q", heading)
	return nil
}

var quoted = regexp.MustCompile("`([^`]*)`")

// leastRights reads both tables.
func leastRights(t *testing.T) (rights []right) {
	t.Helper()
	for _, side := range []string{"destination", "source"} {
		for _, cells := range table(t, "At the "+side) {
			if len(cells) != 4 {
				t.Fatalf("docs/security.md: %d cells in %v", len(cells), cells)
			}
			operation, err := kmsg.ParseACLOperation(cells[0])
			must(t, err)
			where, _, _ := strings.Cut(cells[3], ":")
			words := quoted.FindStringSubmatch(cells[3])
			if words == nil {
				t.Fatalf("docs/security.md: no words in %q", cells[3])
			}
			rights = append(rights, right{side: side, operation: operation, resource: cells[1], where: where, words: words[1]})
		}
	}
	return rights
}

// grant gives the gateway's user a right, take takes it away.
func (w *rightsWorld) grant(r right) {
	w.t.Helper()
	w.grantAt(w.admin(r.side), gatewayUser, r)
}

func (w *rightsWorld) grantAt(cluster *kadm.Client, user string, rights ...right) {
	w.t.Helper()
	for _, r := range rights {
		harness.AddACLs(w.t, cluster, r.acl(w.t, user))
	}
}

func (w *rightsWorld) take(r right) {
	w.t.Helper()
	if deleted := harness.RemoveACLs(w.t, w.admin(r.side), r.acl(w.t, gatewayUser)); deleted != 1 {
		w.t.Fatalf("%d ACLs were taken away for %v", deleted, r)
	}
}

func (w *rightsWorld) admin(side string) *kadm.Client {
	if side == "source" {
		return w.from
	}
	return w.to
}

// gatewayUser is who the gateway is on both sides.
const gatewayUser = "gateway"

var rightsOptions = kafkatest.Options{
	Heap:     "384m",
	Security: &kafkatest.Security{Mechanisms: []string{scram512}, ACLs: true},
}

package mirror

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/store"
)

// # ACLs
//
// The ACLs of the source that the mirror includes are added at the destination. Only those that a mirror added are ever
// removed: a record in the state log has a hash of each. It is written before they are added, so that a crash leaves none
// behind that nobody would remove; and only then may an ACL be in the record and not at the destination. What somebody
// else had added before is in no record, and stays. An ACL that another mirror added counts as ours too if our source has
// it, and is removed when the last mirror lets go of it.
//
// Left alone, neither added nor removed, are ACLs of single topics that are STOPPED, as they belong to the destination now,
// of topics that begin with two underscores, and of the gateway's own user at the destination: what an operator took from
// it must not come back because a user of the source has the same name. Without any topic at work, nothing is done: after a switch the ACLs are the
// destination's own.

// acl is one ACL binding.
type acl struct {
	resource   kmsg.ACLResourceType
	name       string
	pattern    kmsg.ACLResourcePatternType
	principal  string
	host       string
	operation  kmsg.ACLOperation
	permission kmsg.ACLPermissionType
}

// aclHash stands for an ACL in the state log.
type aclHash [8]byte

func (a acl) hash() (h aclHash) {
	var b strings.Builder
	for _, field := range []string{
		strconv.Itoa(int(a.resource)), a.name, strconv.Itoa(int(a.pattern)), a.principal, a.host,
		strconv.Itoa(int(a.operation)), strconv.Itoa(int(a.permission)),
	} {
		b.WriteString(field)
		b.WriteByte(0)
	}
	sum := sha256.Sum256([]byte(b.String()))
	copy(h[:], sum[:])
	return h
}

// String names an ACL for people.
func (a acl) String() string {
	return fmt.Sprintf("%s %s %q: %s %s on %s from %s", a.pattern, a.resource, a.name, a.permission, a.operation, a.principal, a.host)
}

// ACLRules say which ACLs are synced.
type ACLRules struct {
	// Types are the resource types, with the patterns of resource names; nil patterns are all names.
	Types map[kmsg.ACLResourceType]Patterns
	// All: whatever the type.
	All bool
}

var aclTypes = map[string]kmsg.ACLResourceType{
	"topic": kmsg.ACLResourceTypeTopic, "group": kmsg.ACLResourceTypeGroup, "cluster": kmsg.ACLResourceTypeCluster,
	"transactional-id": kmsg.ACLResourceTypeTransactionalId, "delegation-token": kmsg.ACLResourceTypeDelegationToken,
	"user": kmsg.ACLResourceTypeUser,
}

// ParseACLRules reads mirror.acls.include: *, none, or a list of TYPE and TYPE:PATTERN. Types may occur again.
func ParseACLRules(list string) (ACLRules, error) {
	rules := ACLRules{Types: make(map[kmsg.ACLResourceType]Patterns)}
	whole := make(map[kmsg.ACLResourceType]bool)
	for _, item := range strings.Split(list, ",") {
		switch item = strings.TrimSpace(item); item {
		case "", "none":
			continue
		case "*":
			rules.All = true
			continue
		}
		name, pattern, named := strings.Cut(item, ":")
		typ, ok := aclTypes[name]
		if !ok {
			return ACLRules{}, fmt.Errorf("%q is neither *, none, nor one of %s", name, strings.Join(sortedKeys(aclTypes), ", "))
		}
		patterns, err := ParsePatterns(pattern)
		if err != nil {
			return ACLRules{}, err
		}
		if named && len(patterns) == 0 {
			return ACLRules{}, fmt.Errorf("%q has no pattern after the colon", item)
		}
		whole[typ] = whole[typ] || !named
		rules.Types[typ] = append(rules.Types[typ], patterns...)
	}
	for typ := range whole {
		if whole[typ] {
			rules.Types[typ] = nil
		}
	}
	return rules, nil
}

// none reports whether ACLs are not synced at all.
func (r ACLRules) none() bool { return !r.All && len(r.Types) == 0 }

func (r ACLRules) match(a acl) bool {
	if r.All {
		return true
	}
	patterns, ok := r.Types[a.resource]
	return ok && (patterns == nil || patterns.Match(a.name))
}

// syncACLs is one cycle.
func (r *mirrorRun) syncACLs(ctx context.Context) outcome {
	rules := r.config().ACLsInclude
	if rules.none() || len(r.mirrored()) == 0 {
		return outcome{off: true}
	}
	there, err := describeACLs(ctx, r.source)
	if err != nil {
		return aclTrouble("source", err, "DESCRIBE on the cluster at the source")
	}
	if err := r.sameCluster(ctx); err != nil {
		return outcome{err: err}
	}
	here, err := describeACLs(ctx, r.m.cfg.Destination)
	if err != nil {
		return aclTrouble("destination", err, alterClusterRight)
	}
	own, others := r.addedACLs()
	plan := planACLs(r.wantedACLs(rules, there), here, own, others, r.leftAlone())
	for h := range r.refusedACLs { // they would be written and taken back every cycle
		delete(plan.during, h)
	}
	o := outcome{skipped: r.ownUsers(rules, there)}
	if !maps.Equal(plan.during, own) {
		if err := r.writeACLs(ctx, plan.during); err != nil {
			return outcome{err: err}
		}
	}
	added, refused, err := createACLs(ctx, r.m.cfg.Destination, plan.add, o.skipped)
	removed, err2 := deleteACLs(ctx, r.m.cfg.Destination, plan.remove, o.skipped)
	after := maps.Clone(plan.during)
	for _, a := range added {
		after[a.hash()] = true
	}
	r.refusedACLs = make(map[aclHash]bool)
	for _, a := range refused { // whoever adds it now is somebody else
		delete(after, a.hash())
		r.refusedACLs[a.hash()] = true
	}
	for _, a := range removed {
		delete(after, a.hash())
	}
	o.changes = len(added) + len(removed)
	o.err = errors.Join(err, err2)
	if !maps.Equal(plan.during, after) {
		o.err = errors.Join(o.err, r.writeACLs(ctx, after))
	}
	return o
}

// aclTrouble is the outcome of a cycle that could not read the ACLs of a cluster. One without an authorizer has none.
func aclTrouble(cluster string, err error, right string) outcome {
	if errors.Is(err, kerr.SecurityDisabled) {
		return outcome{skipped: map[string]string{"all ACLs": "the " + cluster + " has no authorizer"}}
	}
	return outcome{err: fmt.Errorf("%s: ask for ACLs: %w", cluster, lacksRight(err, "%s", right))}
}

// wantedACLs are the ACLs of the source that the rules include.
func (r *mirrorRun) wantedACLs(rules ACLRules, there []acl) map[aclHash]acl {
	wanted := make(map[aclHash]acl, len(there))
	for _, a := range there {
		if rules.match(a) {
			wanted[a.hash()] = a
		}
	}
	return wanted
}

// leftAlone tells the ACLs that this mirror neither adds nor removes.
func (r *mirrorRun) leftAlone() func(acl) bool {
	stopped := make(map[string]bool)
	for _, rec := range r.m.records.Topics(r.name) {
		stopped[rec.Name] = State(rec.State) == Stopped
	}
	return func(a acl) bool {
		return r.isOwnUser(a) || a.resource == kmsg.ACLResourceTypeTopic && (strings.HasPrefix(a.name, "__") ||
			a.pattern == kmsg.ACLResourcePatternTypeLiteral && stopped[a.name])
	}
}

// isOwnUser reports whether an ACL is one of the gateway's own user.
func (r *mirrorRun) isOwnUser(a acl) bool {
	return r.m.cfg.Principal != "" && a.principal == r.m.cfg.Principal
}

// ownUsers are the ACLs of the source that are left out because they are of the gateway's own user, with the reason.
func (r *mirrorRun) ownUsers(rules ACLRules, there []acl) map[string]string {
	skipped := make(map[string]string)
	for _, a := range there {
		if r.isOwnUser(a) && rules.match(a) {
			skipped[a.String()] = "it is of the gateway's own user at the destination, whose rights are not synced"
		}
	}
	return skipped
}

// aclPlan is what a cycle does.
type aclPlan struct {
	add, remove []acl
	// during is the record from before the first change until after the last.
	during map[aclHash]bool
}

// planACLs compares: wanted at the source, here at the destination, own and others' those that mirrors added. It is pure.
func planACLs(wanted map[aclHash]acl, here []acl, own, others map[aclHash]bool, leftAlone func(acl) bool) aclPlan {
	plan := aclPlan{during: make(map[aclHash]bool)}
	present := make(map[aclHash]bool, len(here))
	for _, a := range here {
		h := a.hash()
		present[h] = true
		_, want := wanted[h]
		switch {
		case leftAlone(a):
			plan.keep(h, own[h])
		case own[h] && !want && !others[h]:
			plan.remove = append(plan.remove, a)
			plan.keep(h, true) // until it is gone
		case want:
			plan.keep(h, own[h] || others[h])
		}
	}
	for h, a := range wanted {
		if !present[h] && !leftAlone(a) {
			plan.add = append(plan.add, a)
			plan.keep(h, true)
		}
	}
	return plan
}

func (p *aclPlan) keep(h aclHash, added bool) {
	if added {
		p.during[h] = true
	}
}

// addedACLs returns what this mirror and what all others have added.
func (r *mirrorRun) addedACLs() (own, others map[aclHash]bool) {
	own, others = make(map[aclHash]bool), make(map[aclHash]bool)
	for _, m := range r.m.records.Mirrors() {
		into := others
		if m.Name == r.name {
			into = own
		}
		rec, _ := r.m.records.ACLs(m.Name)
		for added := range slices.Chunk(rec.Added, len(aclHash{})) {
			into[aclHash(added)] = true
		}
	}
	return own, others
}

// writeACLs makes durable what this mirror added.
func (r *mirrorRun) writeACLs(ctx context.Context, added map[aclHash]bool) error {
	hashes := make([][]byte, 0, len(added))
	for h := range added {
		hashes = append(hashes, h[:])
	}
	slices.SortFunc(hashes, bytes.Compare)
	next := &store.ACLs{Mirror: r.name, Added: bytes.Join(hashes, nil)}
	return r.m.update(ctx, store.Update{Key: store.ACLsKey(r.name), Fn: store.Typed(func(now *store.ACLs) (*store.ACLs, error) {
		if _, ok := r.m.records.Mirror(r.name); !ok {
			return nil, unknownMirror(r.name) // deleted meanwhile
		}
		if now != nil && bytes.Equal(now.Added, next.Added) {
			return nil, store.ErrNoChange
		}
		return next, nil
	})})
}

// describeACLs asks for all ACLs of a cluster.
func describeACLs(ctx context.Context, client *kgo.Client) ([]acl, error) {
	req := kmsg.NewPtrDescribeACLsRequest()
	req.ResourceType, req.ResourcePatternType = kmsg.ACLResourceTypeAny, kmsg.ACLResourcePatternTypeAny
	req.Operation, req.PermissionType = kmsg.ACLOperationAny, kmsg.ACLPermissionTypeAny
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return nil, err
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		if resp.ErrorMessage != nil {
			err = fmt.Errorf("%w (%s)", err, WithoutRequest(*resp.ErrorMessage))
		}
		return nil, err
	}
	var acls []acl
	for _, resource := range resp.Resources {
		for _, a := range resource.ACLs {
			acls = append(acls, acl{
				resource: resource.ResourceType, name: resource.ResourceName, pattern: resource.ResourcePatternType,
				principal: a.Principal, host: a.Host, operation: a.Operation, permission: a.PermissionType,
			})
		}
	}
	return acls, nil
}

// aclsAtOnce is how many ACLs are in one request.
const aclsAtOnce = 1000

// createACLs adds ACLs, and returns those that were added and those that the destination refused, with reasons in skipped.
func createACLs(ctx context.Context, client *kgo.Client, acls []acl, skipped map[string]string) (added, refused []acl, err error) {
	for chunk := range slices.Chunk(acls, aclsAtOnce) {
		req := kmsg.NewPtrCreateACLsRequest()
		for _, a := range chunk {
			c := kmsg.NewCreateACLsRequestCreation()
			c.ResourceType, c.ResourceName, c.ResourcePatternType = a.resource, a.name, a.pattern
			c.Principal, c.Host, c.Operation, c.PermissionType = a.principal, a.host, a.operation, a.permission
			req.Creations = append(req.Creations, c)
		}
		resp, err := req.RequestWith(ctx, client)
		if err == nil && len(resp.Results) != len(chunk) {
			err = fmt.Errorf("%d results for %d ACLs", len(resp.Results), len(chunk))
		}
		if err != nil {
			return added, refused, fmt.Errorf("add ACLs at the destination: %w", err)
		}
		for i, result := range resp.Results {
			if err := kafkaError(result.ErrorCode, result.ErrorMessage); err != nil {
				refused = append(refused, chunk[i])
				skipped[chunk[i].String()] = "the destination refuses it: " + lacksRight(err, alterClusterRight).Error()
				continue
			}
			added = append(added, chunk[i])
		}
	}
	return added, refused, nil
}

// deleteACLs removes ACLs, each by a filter that matches nothing else, and returns those that are gone.
func deleteACLs(ctx context.Context, client *kgo.Client, acls []acl, skipped map[string]string) (removed []acl, err error) {
	for chunk := range slices.Chunk(acls, aclsAtOnce) {
		req := kmsg.NewPtrDeleteACLsRequest()
		for i := range chunk {
			a := &chunk[i]
			f := kmsg.NewDeleteACLsRequestFilter()
			f.ResourceType, f.ResourceName, f.ResourcePatternType = a.resource, &a.name, a.pattern
			f.Principal, f.Host, f.Operation, f.PermissionType = &a.principal, &a.host, a.operation, a.permission
			req.Filters = append(req.Filters, f)
		}
		resp, err := req.RequestWith(ctx, client)
		if err == nil && len(resp.Results) != len(chunk) {
			err = fmt.Errorf("%d results for %d ACLs", len(resp.Results), len(chunk))
		}
		if err != nil {
			return removed, fmt.Errorf("remove ACLs at the destination: %w", err)
		}
		for i, result := range resp.Results {
			err := kafkaError(result.ErrorCode, result.ErrorMessage)
			for _, match := range result.MatchingACLs {
				err = errors.Join(err, kafkaError(match.ErrorCode, match.ErrorMessage))
			}
			if err != nil {
				skipped[chunk[i].String()] = "the destination does not remove it: " + lacksRight(err, alterClusterRight).Error()
				continue
			}
			removed = append(removed, chunk[i])
		}
	}
	return removed, nil
}

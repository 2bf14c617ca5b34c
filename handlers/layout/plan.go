package layout

import (
	"slices"
	"sync"
)

// plan is the layout of a struct at one version. Fields of fixed size that nobody looks for are joined to one step, so
// that a walk does little per struct.
type plan struct {
	steps    []step
	flexible bool
	tagged   []taggedStep // in order of tag; only those with marks inside
	fixed    int          // length in bytes, 0 if it varies
	marked   bool         // holds marked fields
}

type step struct {
	skip     int // bytes to skip; nothing else is set then
	kind     Kind
	array    bool
	nullable bool
	mark     Mark
	sub      *plan // of a Struct
}

type taggedStep struct {
	tag uint32
	step
}

type planKey struct {
	message *Message
	version int16
}

// plans holds every plan that was asked for: there are few versions, and they do not change.
var plans sync.Map // planKey → *plan

// planFor returns the plan of m at version v, or nil if the tables do not reach that far.
func (m *Message) planFor(v int16) *plan {
	if v < 0 || v >= m.Versions.Until {
		return nil
	}
	key := planKey{m, v}
	if p, ok := plans.Load(key); ok {
		return p.(*plan)
	}
	p, _ := plans.LoadOrStore(key, compile(m.Fields, v, m.Flexible.Has(v)))
	return p.(*plan)
}

func compile(fields []Field, v int16, flexible bool) *plan {
	p := &plan{flexible: flexible}
	varies := flexible
	for i := range fields {
		f := &fields[i]
		if !f.Versions.Has(v) {
			continue
		}
		s := step{kind: f.Kind, array: f.Array, nullable: f.Nullable.Has(v), mark: f.Mark}
		if f.Kind == Struct {
			s.sub = compile(f.Fields, v, flexible)
		}
		marked := s.mark != Unmarked || s.sub != nil && s.sub.marked
		p.marked = p.marked || marked
		if f.Tagged.Has(v) {
			if marked {
				p.tagged = append(p.tagged, taggedStep{f.Tag, s})
			}
			continue
		}
		n := s.fixedSize()
		varies = varies || n == 0
		if n > 0 {
			p.fixed += n
		}
		p.add(s, n)
	}
	if varies {
		p.fixed = 0
	}
	slices.SortFunc(p.tagged, func(a, b taggedStep) int { return int(a.tag) - int(b.tag) })
	return p
}

// add appends s, joining what is skipped with what was skipped before.
func (p *plan) add(s step, fixed int) {
	if fixed == 0 || s.mark != Unmarked || s.sub != nil && s.sub.marked {
		p.steps = append(p.steps, s)
		return
	}
	if last := len(p.steps) - 1; last >= 0 && p.steps[last].skip > 0 {
		p.steps[last].skip += fixed
		return
	}
	p.steps = append(p.steps, step{skip: fixed})
}

// fixedSize returns the length of a field that always has the same, else 0.
func (s step) fixedSize() int {
	switch {
	case s.array || s.nullable && s.kind == Struct:
		return 0
	case s.kind == Struct:
		return s.sub.fixed
	}
	return s.kind.size()
}

// elementSize returns the length of each element of an array that has nothing to report, else 0.
func (s step) elementSize() int {
	switch {
	case s.kind != Struct && s.mark == Unmarked:
		return s.kind.size()
	case s.kind == Struct && !s.sub.marked:
		return s.sub.fixed
	}
	return 0
}

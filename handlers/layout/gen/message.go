package main

import (
	"fmt"
	"strconv"
	"strings"
)

// message is a definition as Kafka writes it.
type message struct {
	Key           int      `json:"apiKey"`
	Type          string   `json:"type"`
	Name          string   `json:"name"`
	ValidVersions string   `json:"validVersions"`
	Flexible      string   `json:"flexibleVersions"`
	Fields        []*field `json:"fields"`
	CommonStructs []*field `json:"commonStructs"`

	valid    span
	flexible span
}

type field struct {
	Name     string   `json:"name"`
	Type     string   `json:"type"`
	Versions string   `json:"versions"`
	Nullable string   `json:"nullableVersions"`
	Tagged   string   `json:"taggedVersions"`
	Flexible string   `json:"flexibleVersions"`
	Tag      int      `json:"tag"`
	Entity   string   `json:"entityType"`
	Fields   []*field `json:"fields"`

	array    bool
	kind     string // type less the array
	versions span
	nullable span
	tagged   span
	mark     string
}

// span is a range of versions; until is exclusive.
type span struct{ from, until int }

const forever = 0x7fff

func parseSpan(s string) (span, error) {
	if s == "" || s == "none" {
		return span{}, nil
	}
	from, to, ranged := strings.Cut(s, "-")
	open := strings.HasSuffix(s, "+")
	first, err := strconv.Atoi(strings.TrimSuffix(from, "+"))
	if err != nil {
		return span{}, fmt.Errorf("versions %q: %w", s, err)
	}
	switch {
	case open:
		return span{first, forever}, nil
	case !ranged:
		return span{first, first + 1}, nil
	}
	last, err := strconv.Atoi(to)
	if err != nil {
		return span{}, fmt.Errorf("versions %q: %w", s, err)
	}
	return span{first, last + 1}, nil
}

// isAPI reports whether m is a request or response of an API that still exists.
func (m *message) isAPI() bool {
	return m.Key >= 0 && (m.Type == "request" || m.Type == "response") && m.valid != span{}
}

// resolve parses versions, puts common structs in their places and marks fields.
func (m *message) resolve() (err error) {
	if m.valid, err = parseSpan(m.ValidVersions); err != nil {
		return err
	}
	if m.flexible, err = parseSpan(m.Flexible); err != nil {
		return err
	}
	common := make(map[string]*field, len(m.CommonStructs))
	for _, s := range m.CommonStructs {
		common[s.Name] = s
	}
	return m.resolveFields(m.Fields, common, 0)
}

func (m *message) resolveFields(fields []*field, common map[string]*field, depth int) error {
	if depth > 10 {
		return fmt.Errorf("%s: structs nest without end", m.Name)
	}
	for _, f := range fields {
		if err := m.resolveField(f, common, depth); err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	m.markFields(fields)
	return nil
}

func (m *message) resolveField(f *field, common map[string]*field, depth int) (err error) {
	f.kind, f.array = strings.CutPrefix(f.Type, "[]")
	for _, v := range []struct {
		text string
		into *span
	}{{f.Versions, &f.versions}, {f.Nullable, &f.nullable}, {f.Tagged, &f.tagged}} {
		if *v.into, err = parseSpan(v.text); err != nil {
			return err
		}
	}
	if f.Flexible != "" && m.Type != "header" {
		return fmt.Errorf("flexibleVersions of a field are not supported")
	}
	if _, ok := kinds[f.kind]; ok {
		return nil
	}
	if f.Fields == nil {
		s, ok := common[f.kind]
		if !ok {
			return fmt.Errorf("unknown type %s", f.kind)
		}
		f.Fields = copyFields(s.Fields)
	}
	f.kind = "struct"
	return m.resolveFields(f.Fields, common, depth+1)
}

// copyFields copies definitions, as each place of a common struct is marked on its own.
func copyFields(fields []*field) []*field {
	out := make([]*field, len(fields))
	for i, f := range fields {
		c := *f
		c.Fields = copyFields(f.Fields)
		out[i] = &c
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// kinds maps the primitive types to the constants of package layout.
var kinds = map[string]string{
	"bool": "Bool", "int8": "Int8", "int16": "Int16", "uint16": "Uint16", "int32": "Int32", "int64": "Int64",
	"float64": "Float64", "uuid": "UUID", "string": "String", "bytes": "Bytes", "records": "Records",
}

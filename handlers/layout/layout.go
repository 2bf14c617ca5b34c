// Package layout knows where the fields of Kafka's requests and responses lie, from tables generated out of Kafka's own
// message definitions, and walks over a message to find topic IDs, topic names, broker addresses and record data
// without decoding it, allocating, or trusting it.
package layout

//go:generate go run ./gen

// Span is a range of versions, From inclusive and Until exclusive; the zero value is empty.
type Span struct{ From, Until int16 }

const forever = 0x7fff

// Has reports whether version v is in the range.
func (s Span) Has(v int16) bool { return v >= s.From && v < s.Until }

// Kind is the type of a field, or of the elements of an array.
type Kind uint8

// The kinds of fields that the definitions use.
const (
	Bool Kind = iota + 1
	Int8
	Int16
	Uint16
	Int32
	Int64
	Float64
	UUID
	String
	Bytes
	Records
	Struct
)

// size returns the length of a fixed-size kind, else 0.
func (k Kind) size() int {
	switch k {
	case Bool, Int8:
		return 1
	case Int16, Uint16:
		return 2
	case Int32:
		return 4
	case Int64, Float64:
		return 8
	case UUID:
		return 16
	}
	return 0
}

// Mark says what the gateway looks for in a field.
type Mark uint8

// The marks. The walker reports marked fields only, and the tagged fields that hold some.
const (
	Unmarked       Mark = iota
	TopicID             // 16 bytes
	TopicName           // string
	NodeID              // int32: the broker whose address follows in the same struct
	BrokerHost          // string
	BrokerPort          // int32
	Listeners           // array of addresses of controllers, which clients have no use for
	ControllerHost      // string: the same, alone
	ControllerPort      // int32
	RecordData          // record batches
	Acks                // int16, of Produce
	LeaderEpoch         // int32: of a partition's leader or a record, in what clients ask and are told; the topic comes first
	ErrorText           // string: what a broker says beside an error code
	EndOfEpoch          // int32: the leader epoch whose end an OffsetForLeaderEpoch asks for
	TagSize             // the length varint of a tagged field that holds marked fields; they follow
	TagEnd              // the end of that tagged field
)

// Message is the definition of a request or response.
type Message struct {
	Key      int16
	Response bool
	Name     string
	Versions Span // that Kafka has; never open
	Flexible Span
	Fields   []Field
}

// Field is one field of a message or struct. A field that is in Tagged versions is a tagged field there.
type Field struct {
	Name     string
	Kind     Kind
	Array    bool
	Mark     Mark
	Versions Span
	Nullable Span
	Tagged   Span
	Tag      uint32
	Fields   []Field // of a Struct
}

// String returns the name of the mark, as gen writes it.
func (m Mark) String() string {
	return [...]string{"-", "TopicID", "TopicName", "NodeID", "BrokerHost", "BrokerPort", "Listeners", "ControllerHost",
		"ControllerPort", "RecordData", "Acks", "LeaderEpoch", "ErrorText", "EndOfEpoch", "TagSize", "TagEnd"}[m]
}

// index finds messages by API key: requests, then responses.
var index = func() (m map[int16][2]*Message) {
	m = make(map[int16][2]*Message, len(messages)/2)
	for i := range messages {
		pair := m[messages[i].Key]
		if messages[i].Response {
			pair[1] = &messages[i]
		} else {
			pair[0] = &messages[i]
		}
		m[messages[i].Key] = pair
	}
	return m
}()

// Request returns the definition of key's request, or nil if the tables do not have it.
func Request(key int16) *Message { return index[key][0] }

// Response returns the definition of key's response, or nil if the tables do not have it.
func Response(key int16) *Message { return index[key][1] }

// Keys calls yield for every API key that the tables have, in no order.
func Keys(yield func(key int16) bool) {
	for key := range index {
		if !yield(key) {
			return
		}
	}
}

// MaxVersion returns the highest version that the tables have of m.
func (m *Message) MaxVersion() int16 { return m.Versions.Until - 1 }

// Has reports whether m has a field with one of marks at version v.
func (m *Message) Has(v int16, marks ...Mark) bool { return has(m.Fields, v, marks) }

func has(fields []Field, v int16, marks []Mark) bool {
	for i := range fields {
		f := &fields[i]
		if !f.Versions.Has(v) {
			continue
		}
		for _, mark := range marks {
			if f.Mark == mark {
				return true
			}
		}
		if has(f.Fields, v, marks) {
			return true
		}
	}
	return false
}

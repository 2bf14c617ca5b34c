package layout_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/handlers/layout"
)

// body is what kmsg's requests and responses have in common.
type body interface {
	SetVersion(int16)
	MaxVersion() int16
	AppendTo([]byte) []byte
	ReadFrom([]byte) error
}

// lost are old versions with fields that Kafka's definitions no longer have. Nothing is marked in them, so that nobody
// walks them.
var lost = map[string]int16{
	"OffsetCommitRequest": 1, "ListOffsetsRequest": 0, "ListOffsetsResponse": 0, "DescribeConfigsResponse": 0,
	"AlterPartitionRequest": 1, "AlterPartitionResponse": 1,
}

// TestWalkAgreesWithKmsg compares with an implementation that others made: what kmsg encodes is walked to its end, and
// the topic IDs, broker addresses and records found are those that kmsg decodes. It covers the versions that Kafka
// dropped too, as older clients and brokers have them.
func TestWalkAgreesWithKmsg(t *testing.T) {
	compared := 0
	for key := range layout.Keys {
		req := kmsg.RequestForKey(key)
		require.NotNil(t, req, "kmsg lacks API key %d", key)
		for _, c := range []struct {
			m    *layout.Message
			make func() body
		}{
			{layout.Request(key), func() body { return kmsg.RequestForKey(key) }},
			{layout.Response(key), func() body { return kmsg.ResponseForKey(key) }},
		} {
			top := min(c.make().MaxVersion(), c.m.MaxVersion())
			if c.m.Has(c.m.MaxVersion(), layout.TopicID, layout.BrokerHost, layout.RecordData) {
				require.Equal(t, c.make().MaxVersion(), c.m.MaxVersion(), "%s: newest version", c.m.Name)
			}
			for v := range top + 1 {
				if last, ok := lost[c.m.Name]; ok && v <= last {
					require.False(t, c.m.Has(v, layout.TopicID, layout.BrokerHost, layout.RecordData))
					continue
				}
				t.Run(fmt.Sprintf("%s/v%d", c.m.Name, v), func(t *testing.T) {
					compareWithKmsg(t, c.m, v, c.make)
				})
				compared++
			}
		}
	}
	require.Greater(t, compared, 500)
}

func compareWithKmsg(t *testing.T, m *layout.Message, v int16, newBody func() body) {
	rng := rand.New(rand.NewPCG(uint64(m.Key), uint64(v)))
	for range 20 {
		made := newBody()
		made.SetVersion(v)
		fill(rng, reflect.ValueOf(made).Elem())
		made.SetVersion(v)
		frame := made.AppendTo(nil)
		read := newBody()
		read.SetVersion(v)
		require.NoError(t, read.ReadFrom(frame), "kmsg")

		spots, end, err := walk(m, frame, 0, v)
		require.NoError(t, err)
		require.Equal(t, len(frame), end)
		found := map[layout.Mark][]string{}
		for _, s := range spots {
			if s.End > s.Start {
				found[s.Mark] = append(found[s.Mark], string(frame[s.Start:s.End]))
			}
		}
		want := map[layout.Mark][]string{}
		collect(reflect.ValueOf(read).Elem(), want, m.Response)
		for mark := range want {
			if !m.Has(v, mark) {
				delete(want, mark)
			}
		}
		for _, mark := range []layout.Mark{layout.TopicID, layout.BrokerHost, layout.RecordData} {
			if mark == layout.TopicID && !m.Has(v, mark) {
				continue
			}
			require.ElementsMatch(t, want[mark], found[mark], "%s", mark)
		}
	}
}

// fill puts random values into everything that kmsg would encode.
func fill(rng *rand.Rand, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && f.Name != "Version" && f.Name != "UnknownTags" {
				fill(rng, v.Field(i))
			}
		}
	case reflect.Slice:
		n := rng.IntN(4)
		if v.Type().Elem().Kind() == reflect.Uint8 {
			n = rng.IntN(200)
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			fill(rng, v.Index(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(rng, v.Index(i))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(rng, v.Elem())
	case reflect.String:
		v.SetString(fmt.Sprintf("s%x", rng.Uint64()>>rng.IntN(60)))
	case reflect.Bool:
		v.SetBool(rng.IntN(2) == 0)
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(rng.Uint64() >> rng.IntN(64)))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		v.SetUint(rng.Uint64())
	case reflect.Float64:
		v.SetFloat(rng.Float64())
	}
}

// collect finds topic IDs, hosts of brokers and records in a decoded message, by the names that kmsg gives them.
func collect(v reflect.Value, out map[layout.Mark][]string, response bool) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if !v.Type().Field(i).IsExported() {
				continue
			}
			name, f := v.Type().Field(i).Name, v.Field(i)
			switch id, isID := f.Interface().([16]byte); {
			case isID && (name == "TopicID" || name == "TopicId" || name == "TopidID"): // as kmsg spells it
				out[layout.TopicID] = append(out[layout.TopicID], string(id[:]))
			case name == "Host" && response && f.String() == "":
			case name == "Host" && response:
				out[layout.BrokerHost] = append(out[layout.BrokerHost], f.String())
			case name == "Records" || name == "RecordBatches" || name == "UnalignedRecords" || name == "Bytes":
				if b, ok := f.Interface().([]byte); ok && len(b) > 0 {
					out[layout.RecordData] = append(out[layout.RecordData], string(b))
				}
			default:
				collect(f, out, response)
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Struct {
			return
		}
		for i := range v.Len() {
			collect(v.Index(i), out, response)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			collect(v.Elem(), out, response)
		}
	}
}

package weights

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"dynmo/src/expect"
)

// golden is the safetensors file of one tensor "a", F32 [2,2] = 1, 2, 3, 4.
const golden = "40000000000000007b2261223a7b226474797065223a22463332222c227368617065223a5b322c325d2c22646174615f6f666673657473223a5b302c31365d7d7d202020202020200000803f000000400000404000008040"

const goldenSum = "ad6abcf1c1451ce5159912bf595642b247d66156b75bb6294282d7d440a5cd9d"

func goldenFile(t testing.TB) []byte {
	t.Helper()
	b, err := hex.DecodeString(golden)
	expect.OK(t, err)
	if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != goldenSum {
		t.Fatal("the golden vector has changed")
	}
	return b
}

// withHeader returns a file with a header and data bytes of data.
func withHeader(header string, data int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, data)...)
}

// whole writes all values of a tensor at once.
func whole(values func(Tensor) ([]byte, error)) func(io.Writer, Tensor) error {
	return func(w io.Writer, t Tensor) error {
		v, err := values(t)
		if err != nil {
			return err
		}
		_, err = w.Write(v)
		return err
	}
}

func parse(b []byte) (*File, error) { return Parse("x.safetensors", bytes.NewReader(b), int64(len(b))) }

func TestGoldenVector(t *testing.T) {
	b := goldenFile(t)
	f, err := parse(b)
	expect.OK(t, err)
	want := []Tensor{{"a", F32, []int64{2, 2}, 0, 16}}
	if !reflect.DeepEqual(f.Tensors, want) {
		t.Errorf("tensors %v, want %v", f.Tensors, want)
	}
	values, err := f.Read(f.Tensors[0])
	if err != nil || !bytes.Equal(values, b[72:]) {
		t.Errorf("values % x, %v", values, err)
	}
	var got bytes.Buffer
	expect.OK(t, Write(&got, nil, want, whole(f.Read)))
	if !bytes.Equal(got.Bytes(), b) {
		t.Errorf("written % x", got.Bytes())
	}
}

// one is the header of a tensor "a" with what is inside its braces.
func one(inside string) string { return `{"a":{` + inside + `}}` }

// hostile lists files that are refused, and what the error says.
var hostile = []struct {
	name string
	file []byte
	want string
}{
	{"empty", nil, "byte 0: the file ends"},
	{"7 bytes", make([]byte, 7), "byte 7: the file ends"},
	{"header of 2^64-1", bytes.Repeat([]byte{255}, 16), "byte 0: header of 18446744073709551615 bytes, want at most 100000000"},
	{"header of 2^63", append(make([]byte, 7), 0x80, '{'), "byte 0: header of 9223372036854775808 bytes"},
	{"header beyond the file", append([]byte{9, 0, 0, 0, 0, 0, 0, 0}, "{}"...), "byte 0: header of 9 bytes in a file that has 2 left"},
	{"header of 0", make([]byte, 8), "byte 8: header: want {"},
	{"space before", withHeader(" {}", 0), "byte 8: header: want {"},
	{"zeros behind", withHeader("{}\x00", 0), "byte 8: header: want {"},
	{"no JSON", withHeader(`{"a"}`, 0), "byte 13: invalid character"},
	{"two objects", withHeader("{}{}", 0), "byte 11: invalid character"},
	{"not UTF-8", withHeader("{\"a\xff\":1}", 0), "byte 11: not UTF-8"},
	{"tensor is a number", withHeader(`{"a":1}`, 0), `"a": byte 13: want a JSON object`},
	{"duplicate tensor", withHeader(`{"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}`, 4), `key "a" stands twice`},
	{"duplicate by escape", withHeader(`{"__metadata__":{"a":"","\u0061":""}}`, 0), `key "a" stands twice`},
	{"duplicate shape", withHeader(one(`"dtype":"F32","shape":[],"shape":[],"data_offsets":[0,4]`), 4), `key "shape" stands twice`},
	{"metadata of numbers", withHeader(`{"__metadata__":{"a":1}}`, 0), `"__metadata__": "a": byte 29: 1: want a string`},
	{"unknown key", withHeader(one(`"dtype":"F32","shape":[],"data_offsets":[0,4],"code":"x"`), 4), `"code": byte 67: unknown key`},
	{"unknown type", withHeader(one(`"dtype":"F99","shape":[],"data_offsets":[0,4]`), 4), `tensor "a": dtype "F99" is not known`},
	{"no type", withHeader(one(`"shape":[],"data_offsets":[0,4]`), 4), "dtype is missing"},
	{"no shape", withHeader(one(`"dtype":"F32","data_offsets":[0,4]`), 4), "shape is missing"},
	{"no offsets", withHeader(one(`"dtype":"F32","shape":[]`), 4), "want [begin, end]"},
	{"three offsets", withHeader(one(`"dtype":"F32","shape":[],"data_offsets":[0,4,8]`), 4), "want [begin, end]"},
	{"null shape", withHeader(one(`"dtype":"F32","shape":null,"data_offsets":[0,4]`), 4), "want an array of integers"},
	{"null dimension", withHeader(one(`"dtype":"F32","shape":[null],"data_offsets":[0,4]`), 4), "null: want an integer"},
	{"negative dimension", withHeader(one(`"dtype":"F32","shape":[-1],"data_offsets":[0,4]`), 4), "-1: want an integer"},
	{"broken dimension", withHeader(one(`"dtype":"F32","shape":[1.0],"data_offsets":[0,4]`), 4), "1.0: want an integer"},
	{"shape overflows", withHeader(one(`"dtype":"F32","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,0]`), 0), "overflows"},
	{"shape wraps to the size", withHeader(one(`"dtype":"F32","shape":[1152921504606846977,16],"data_offsets":[0,64]`), 64), "overflows"},
	{"offset overflows", withHeader(one(`"dtype":"F32","shape":[],"data_offsets":[0,18446744073709551620]`), 4), "want an integer"},
	{"shape mismatch", withHeader(one(`"dtype":"F32","shape":[2,2],"data_offsets":[0,12]`), 12), "data_offsets [0, 12], want 16 bytes for F32 [2 2]"},
	{"backwards", withHeader(one(`"dtype":"F32","shape":[0],"data_offsets":[4,0]`), 4), "data begin at 4, want 0"},
	{"ends within a byte", withHeader(one(`"dtype":"F4","shape":[3],"data_offsets":[0,1]`), 1), "ends within a byte"},
	{"hole at the beginning", withHeader(one(`"dtype":"U8","shape":[1],"data_offsets":[1,2]`), 2), "data begin at 1, want 0"},
	{"hole at the end", withHeader(one(`"dtype":"U8","shape":[1],"data_offsets":[0,1]`), 2), "1 bytes belong to no tensor"},
	{"hole", withHeader(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}}`, 3), `tensor "b": data begin at 2, want 1`},
	{"overlap", withHeader(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}`, 3), `tensor "b": data begin at 1, want 2`},
	{"beyond the end", withHeader(one(`"dtype":"F32","shape":[2],"data_offsets":[0,8]`), 7), "data end at 8 of 7 bytes"},
	{"data without tensors", withHeader("{}", 5), "5 bytes belong to no tensor"},
}

func TestParseRefuses(t *testing.T) {
	expect.NewFault(t, "F29", "")
	for _, c := range hostile {
		t.Run(c.name, func(t *testing.T) {
			_, err := parse(c.file)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "x.safetensors: ") {
				t.Errorf("error %v, want x.safetensors and %q", err, c.want)
			}
		})
	}
}

// A file that lies about its sizes is refused before they are allocated.
func TestParseRefusesBeforeAllocation(t *testing.T) {
	expect.NewFault(t, "F29", "")
	list := hostile
	for _, size := range []string{"25000001,4", "1152921504606846975,4", "2305843009213693951,4"} {
		n := strings.TrimSuffix(size, ",4")
		list = append(list, struct {
			name string
			file []byte
			want string
		}{"a tensor of " + n + " numbers", withHeader(one(`"dtype":"F32","shape":[`+n+`],"data_offsets":[0,4]`), 4), "data_offsets"})
	}
	for _, c := range list {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := parse(c.file)
		runtime.ReadMemStats(&after)
		if allocated := after.TotalAlloc - before.TotalAlloc; err == nil || allocated > 1<<20 {
			t.Errorf("%s: %d bytes allocated for a file of %d, error %v", c.name, allocated, len(c.file), err)
		}
	}
}

// Every prefix of a sound file is refused.
func TestParseTruncated(t *testing.T) {
	b := goldenFile(t)
	for n := range b {
		if _, err := parse(b[:n]); err == nil {
			t.Errorf("%d of %d bytes are taken for a file", n, len(b))
		}
	}
}

// Scalars, tensors without values, types of every alignment and metadata are read back. An empty
// tensor may lie anywhere between two tensors.
func TestWriteAndParse(t *testing.T) {
	list := []Tensor{
		{Name: "scalar", DType: "BOOL"}, {Name: "none", DType: "F64", Shape: []int64{3, 0}}, {Name: `"quoted" <é>`, DType: "BF16", Shape: []int64{3}},
		{Name: "six", DType: "F6_E2M3", Shape: []int64{4}}, {Name: "b", DType: "I64", Shape: []int64{1}}, {Name: "a", DType: "I64", Shape: []int64{1, 1}},
	}
	metadata := map[string]string{"format": "pt", "note": "line\nline"}
	var out bytes.Buffer
	values := whole(func(t Tensor) ([]byte, error) { return bytes.Repeat([]byte{t.Name[0]}, int(t.Bytes())), nil })
	expect.OK(t, Write(&out, metadata, list, values))
	f, err := parse(out.Bytes())
	expect.OK(t, err)
	if f.data%8 != 0 || !reflect.DeepEqual(f.Metadata, metadata) {
		t.Errorf("data at %d, metadata %q", f.data, f.Metadata)
	}
	var names []string
	for _, x := range f.Tensors {
		names = append(names, x.Name)
		if got, err := f.Read(x); err != nil || !bytes.Equal(got, bytes.Repeat([]byte{x.Name[0]}, int(x.Bytes()))) {
			t.Errorf("%s: values %q, %v", x.Name, got, err)
		}
	}
	want := []string{"a", "b", "none", `"quoted" <é>`, "six", "scalar"}
	if !slices.Equal(names, want) {
		t.Errorf("order %q, want %q", names, want)
	}
}

func TestWriteFailsAsItsValuesDo(t *testing.T) {
	broken := func(io.Writer, Tensor) error { return errors.New("disk on fire") }
	if err := Write(io.Discard, nil, []Tensor{{Name: "a", DType: F32}}, broken); err == nil || err.Error() != "disk on fire" {
		t.Errorf("error %v", err)
	}
}

// FuzzParse: a file is refused, or its tensors tile its data and survive being
// written and read again. If it is a dynmo weights file, all weights are read.
func FuzzParse(f *testing.F) {
	f.Add(goldenFile(f))
	f.Add(ownFile(f))
	for _, c := range hostile {
		f.Add(c.file)
	}
	f.Add(withHeader(`{"__metadata__":{"format":"pt"},"a":{"dtype":"F4","shape":[2,0],"data_offsets":[0,0]}} `, 0))
	f.Fuzz(func(t *testing.T, file []byte) {
		s, err := parse(file)
		if err != nil {
			return
		}
		end := s.data
		for _, x := range s.Tensors {
			if s.data+x.Begin != end {
				t.Fatalf("%q begins at %d, want %d", x.Name, s.data+x.Begin, end)
			}
			end = s.data + x.End
			if v, err := s.Read(x); err != nil || int64(len(v)) != x.Bytes() {
				t.Fatalf("%q: %d bytes, %v", x.Name, len(v), err)
			}
		}
		if end != int64(len(file)) {
			t.Fatalf("tensors end at %d of %d", end, len(file))
		}
		if w, err := s.Weights(); err == nil {
			readAll(t, w)
		}
		source := make(map[string]Tensor)
		for _, x := range s.Tensors {
			source[x.Name] = x
		}
		var out bytes.Buffer
		expect.OK(t, Write(&out, s.Metadata, s.Tensors, whole(func(x Tensor) ([]byte, error) { return s.Read(source[x.Name]) })))
		again, err := parse(out.Bytes())
		if err != nil {
			t.Fatalf("the written file: %v", err)
		}
		if len(again.Tensors) != len(s.Tensors) || !reflect.DeepEqual(again.Metadata, s.Metadata) {
			t.Fatalf("wrote %v and %v, read %v and %v", s.Tensors, s.Metadata, again.Tensors, again.Metadata)
		}
		for _, x := range again.Tensors {
			a, _ := again.Read(x)
			b, _ := s.Read(source[x.Name])
			if !bytes.Equal(a, b) || x.DType != source[x.Name].DType || fmt.Sprint(x.Shape) != fmt.Sprint(source[x.Name].Shape) {
				t.Fatalf("wrote %v, read %v", source[x.Name], x)
			}
		}
	})
}

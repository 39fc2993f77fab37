package weights

import (
	"encoding/binary"
	"io"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"dynmo/src/expect"
	"dynmo/src/tensor"
)

// Weights stored as bfloat16 are the values nearest to the model's weights. The configuration names
// the type, and the stored values are read back.
func TestHuggingFaceBF16(t *testing.T) {
	for _, tied := range []bool{true, false} {
		g := newGPT2(tied, "transformer.")
		out, again := filepath.Join(t.TempDir(), "bf16"), filepath.Join(t.TempDir(), "f32")
		w := imported(t, g.directory(t))
		w.Config = newConfig(w.Config.Model)
		expect.OK(t, w.WriteHuggingFace(out, bf16, nil))
		f, err := Open(filepath.Join(out, "model.safetensors"))
		expect.OK(t, err)
		defer f.Close()
		for _, stored := range f.Tensors {
			from := g.values[strings.TrimPrefix(stored.Name, g.prefix)]
			values, err := f.Read(stored)
			expect.OK(t, err)
			if stored.DType != bf16 || len(values) != 2*len(from) {
				t.Fatalf("%s: %s, %d bytes for %d values", stored.Name, stored.DType, len(values), len(from))
			}
			for i, x := range from {
				if got, want := binary.LittleEndian.Uint16(values[2*i:]), tensor.ToBF16(x); got != want {
					t.Fatalf("%s: value %d is %#x, want %#x", stored.Name, i, got, want)
				}
			}
		}
		if config := string(read(t, filepath.Join(out, "config.json"))); !strings.Contains(config, `"torch_dtype": "bfloat16"`) || strings.Contains(config, "float32") {
			t.Errorf("config.json: %s", config)
		}
		back := imported(t, out)
		for _, p := range back.Config.Model.Weights() {
			got, err := back.Read(p)
			expect.OK(t, err)
			want, err := w.Read(p)
			expect.OK(t, err)
			for i := range want {
				if got[i] != tensor.FromBF16(tensor.ToBF16(want[i])) {
					t.Fatalf("%s: value %d is %v, was %v", p.Name, i, got[i], want[i])
				}
			}
		}
		expect.OK(t, back.WriteHuggingFace(again, F32, nil))
		if config := string(read(t, filepath.Join(again, "config.json"))); config != string(newConfig(w.Config.Model).Text) {
			t.Errorf("as float32 again: config.json: %s", config)
		}
	}
}

// A configuration names the type that weights are stored as; nothing else in it changes.
func TestConfigStored(t *testing.T) {
	for _, c := range []struct {
		text string
		d    DType
		want string
	}{
		{`{"model_type":"gpt2"}`, F32, `{"model_type":"gpt2"}`},
		{` {"model_type":"gpt2"}`, bf16, "{\n  \"torch_dtype\": \"bfloat16\",\"model_type\":\"gpt2\"}"},
		{`{"torch_dtype": "float16", "model_type":"gpt2", "dtype":null, "prefix":1}`, bf16, `{"torch_dtype": "bfloat16", "model_type":"gpt2", "dtype":"bfloat16", "prefix":1}`},
		{`{"model_type":"gpt2","dtype":"bfloat16"}`, F32, `{"model_type":"gpt2","dtype":"float32"}`},
		{`{"model_type":"gpt2","task_specific_params":{"dtype":"bfloat16"}}`, F32, `{"model_type":"gpt2","task_specific_params":{"dtype":"bfloat16"}}`},
	} {
		parsed, err := parseConfig([]byte(c.text))
		expect.OK(t, err)
		if got, err := parsed.stored(c.d); err != nil || string(got) != c.want {
			t.Errorf("%s as %s: %s (%v), want %s", c.text, c.d, got, err, c.want)
		}
	}
}

// Weights of float16 are read as the numbers they are.
func TestHuggingFaceF16(t *testing.T) {
	g := newGPT2(true, "")
	dir := g.directory(t)
	w, err := OpenHuggingFace(dir)
	expect.OK(t, err)
	var list []Tensor
	for _, p := range w.Config.Model.Weights() {
		shape := w.pieces(p)[0].Tensor
		shape.DType = f16
		list = append(list, shape)
	}
	expect.OK(t, w.Close())
	var b strings.Builder
	expect.OK(t, Write(&b, nil, list, func(w io.Writer, t Tensor) error {
		values := make([]byte, t.Bytes())
		for i := range values[:len(values)/2] {
			binary.LittleEndian.PutUint16(values[i/2*2:], 0xbc00+uint16(i/2)) // -1, then smaller by 2^-10 each
		}
		_, err := w.Write(values)
		return err
	}))
	save(t, filepath.Join(dir, "model.safetensors"), []byte(b.String()))
	w = imported(t, dir)
	values, err := w.Read(w.Config.Model.Weights()[0])
	expect.OK(t, err)
	if values[0] != -1 || values[3] != -1-3.0/1024 {
		t.Errorf("values %v", values[:4])
	}
	for bits, want := range map[uint16]float64{
		0: 0, 0x3c00: 1, 0xc000: -2, 0x7bff: 65504, 1: 0x1p-24, 0x83ff: -1023 * 0x1p-24, 0x0400: 0x1p-14, 0x3555: 0.333251953125,
		0x7c00: math.Inf(1), 0xfc00: math.Inf(-1),
	} {
		if got := fromF16(bits); float64(got) != want {
			t.Errorf("%#x is %v, want %v", bits, got, want)
		}
	}
	if x := fromF16(0x8000); x != 0 || !math.Signbit(float64(x)) || fromF16(0x7e01) == fromF16(0x7e01) {
		t.Errorf("-0 is %v, NaN %v", x, fromF16(0x7e01))
	}
}

// Every float16 number converts to float32 and back unchanged. Ties round to even, and a number
// that is too large is an error.
func TestF16(t *testing.T) {
	for bits := range 1 << 16 {
		if got := toF16(fromF16(uint16(bits))); got != uint16(bits) && bits&(infiniteF16) != infiniteF16 {
			t.Fatalf("%#x comes back as %#x", bits, got)
		}
	}
	for x, want := range map[float32]uint16{
		1 + 0x1p-11: 0x3c00, 1 + 3*0x1p-11: 0x3c02, 1 + 0x1p-11 + 0x1p-20: 0x3c01, 65519: 0x7bff, -65519: 0xfbff, 0x1p-25: 0, 3 * 0x1p-25: 2,
		0x1p-14 - 0x1p-26: 0x0400, 1e-30: 0, float32(math.Inf(-1)): 0xfc00, 2 - 0x1p-12: 0x4000,
	} {
		if got := toF16(x); got != want {
			t.Errorf("%v is %#x, want %#x", x, got, want)
		}
	}
	if nan := toF16(float32(math.NaN())); nan&infiniteF16 != infiniteF16 || nan&1023 == 0 {
		t.Errorf("NaN is %#x", nan)
	}
	large := binary.LittleEndian.AppendUint32(nil, math.Float32bits(65520))
	if _, err := convert(large, F32, f16); err == nil || err.Error() != "value 65520: float16 has nothing beyond 65504" {
		t.Errorf("error %v", err)
	}
}

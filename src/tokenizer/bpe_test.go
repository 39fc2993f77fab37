package tokenizer

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/tiktoken-go/tokenizer/codec"

	"dynmo/src/data"
	"dynmo/src/expect"
)

// moduleText returns the source files of a module whose version go.mod pins.
func moduleText(t testing.TB) (dir string, files []string) {
	t.Helper()
	const module = "github.com/BurntSushi/toml"
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	dir = strings.TrimSpace(string(out))
	if err != nil || dir == "" {
		t.Skipf("no source of module %s: %v", module, err)
	}
	files, err = filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	return dir, files
}

// gpt2 is the library.
var gpt2 = sync.OnceValue(codec.NewR50kBase)

// library returns the codec's own ids of a text.
func library(t testing.TB, c *codec.Codec, text string) []int32 {
	t.Helper()
	found, _, err := c.Encode(text)
	expect.OK(t, err)
	tokens := make([]int32, len(found))
	for i, id := range found {
		tokens[i] = int32(id)
	}
	return tokens
}

// same encodes a text whole, and in two parts at the last place that cut finds. It compares the
// ids with the codec's, and the decoded text with the text. The codec lacks a character: texts
// with it are only decoded.
func same(t testing.TB, b *encoder, text string) {
	t.Helper()
	want := library(t, gpt2(), text)
	if strings.Contains(text, lost) {
		var err error
		if want, err = b.encode(nil, text); err != nil {
			t.Fatal(err)
		}
	}
	ids := make([]uint, len(want))
	for i, id := range want {
		ids[i] = uint(id)
	}
	if again, err := gpt2().Decode(ids); err != nil || again != text {
		t.Fatalf("%q encoded and decoded is %q; %v", text, again, err)
	}
	for _, position := range []int{0, cut([]byte(text), 0)} {
		got, err := b.encode(nil, text[:position])
		if err == nil {
			got, err = b.encode(got, text[position:])
		}
		if err != nil || !slices.Equal(got, want) {
			i := 0
			for i < min(len(got), len(want)) && got[i] == want[i] {
				i++
			}
			t.Fatalf("text of %d bytes, cut at %d: %d ids, want %d; they part at %d: %v, want %v; %v",
				len(text), position, len(got), len(want), i, got[i:min(i+5, len(got))], want[i:min(i+5, len(want))], err)
		}
	}
}

func TestBPEKnownText(t *testing.T) {
	// As OpenAI's encoder has them.
	for text, want := range map[string][]int32{
		"Hello world":   {15496, 995},
		"":              nil,
		"<|endoftext|>": {27, 91, 437, 1659, 5239, 91, 29}, // text, not the special token
		// The delete character, which the library drops; 's is no piece after it.
		"\x7f's":   {221, 6, 82},
		" \x7f-a":  {220, 221, 12, 64},
		"\x7f\x7f": {221, 221},
		"a\x7f":    {64, 221},
	} {
		got, err := newBPE().encode(nil, text)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v; %v", text, got, want, err)
		}
	}
}

func TestBPEIsTheLibrarys(t *testing.T) {
	_, files := moduleText(t)
	b := newBPE()
	for _, f := range files {
		same(t, b, string(expect.Read(t, f)))
	}
	for _, text := range []string{
		"it's we're I'll they've I'm he'd 'sx 'S ''s '", "a  b\n\n c\t\td \r\n", "  ", "\n", " ", "a ",
		"x\u00a0y \u3000 z\u2028\u0085q", "naïve 12³ ½ Ⅷ 中文 字 \U0001f600\U0001f600 \u200b\ufeff",
		strings.Repeat("ab", 200) + strings.Repeat(" ", 300) + strings.Repeat("=", 300), "\x00\x01 \x7f",
	} {
		same(t, b, text)
	}
}

// Every character, beside a letter, itself, a mark and a space.
func TestBPEOnEveryCharacter(t *testing.T) {
	b := newBPE()
	step := 29 // 50,000 characters, all of the first 12,000
	if os.Getenv("DYNMO_LONG") == "1" {
		step = 1
	}
	var text strings.Builder
	same(t, b, lost+"a"+lost+lost+"-"+lost+" "+lost)
	for r := rune(0); r <= utf8.MaxRune; r++ {
		if r == rune(lost[0]) || !utf8.ValidRune(r) || r > 0x3100 && int(r)%step != 0 {
			continue
		}
		fmt.Fprintf(&text, "a%c%c-%c %c", r, r, r, r)
		if text.Len() > 1<<12 || r == utf8.MaxRune {
			same(t, b, text.String())
			text.Reset()
		}
	}
}

// An encoder that forgets its known pieces gives the same ids.
func TestBPEForgets(t *testing.T) {
	b := newBPE()
	want, err := b.encode(nil, "the same words")
	expect.OK(t, err)
	for i := 0; len(b.known) < remembered; i++ {
		b.known[fmt.Sprint("filled", i)] = nil
	}
	got, err := b.encode(nil, "the other words; the same words")
	if err != nil || len(b.known) > 100 || !slices.Equal(got[len(got)-len(want)+1:], want[1:]) {
		t.Errorf("%d pieces known, ids %v, want %v at the end; %v", len(b.known), got, want, err)
	}
}

func FuzzBPE(f *testing.F) {
	for _, text := range []string{"\x7f's", "Hello world", "it's  we'll\n\n x", "naïve \u00a0 ½", "'", " '", "\t \n"} {
		f.Add(text)
	}
	b := newBPE()
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) {
			t.Skip()
		}
		same(t, b, text)
	})
}

// all returns the description and the ids of a token file.
func all(t *testing.T, path string) (*data.Tokens, []int32) {
	t.Helper()
	f, err := data.OpenTokens(path, "")
	expect.OK(t, err)
	t.Cleanup(func() { expect.OK(t, f.Close()) })
	raw := expect.Read(t, path)
	if f.Format == data.LLMC {
		raw = raw[1024:] // the header
	}
	var tokens []int32
	switch f.Type() {
	case "u16":
		for i := 0; i < len(raw); i += 2 {
			tokens = append(tokens, int32(binary.LittleEndian.Uint16(raw[i:])))
		}
	default:
		for i := 0; i < len(raw); i += 4 {
			tokens = append(tokens, int32(binary.LittleEndian.Uint32(raw[i:])))
		}
	}
	return f, tokens
}

func prepare(t *testing.T, workers int, format data.Format, inputs ...string) (string, Prepared) {
	t.Helper()
	p := Preparation{Keys: []string{"text"}, Tokenizer: GPT2(), Inputs: inputs, Extensions: []string{".go", ".txt"}, Workers: workers, Format: format,
		Output: filepath.Join(t.TempDir(), "x.bin")}
	var told int64
	done, err := p.Run(context.Background(), func(done, total int64) {
		if done <= told || done > total {
			t.Errorf("%d bytes of %d done after %d", done, total, told)
		}
		told = done
	})
	expect.OK(t, err)
	if told != done.Bytes {
		t.Errorf("%d bytes told, %d done", told, done.Bytes)
	}
	return p.Output, done
}

// A text of several parts, cut at spaces, and one without any: files are what
// the library makes of them whole, with any number of workers.
func TestPrepare(t *testing.T) {
	dir, files := moduleText(t)
	var want []int32
	var documents, size int
	add := func(path string) {
		text := string(expect.Read(t, path))
		documents, size = documents+1, size+len(text)
		want = append(append(want, library(t, gpt2(), text)...), data.GPT2End)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	var long strings.Builder
	source := string(expect.Read(t, files[0]))
	for long.Len() < 2*block+block/2 {
		position := rnd.IntN(len(source) / 2)
		long.WriteString(source[position : position+len(source)/2])
	}
	more := expect.Tree(t, map[string]string{
		"a.txt": strings.ToValidUTF8(long.String(), ""),
		"b.txt": strings.Repeat("x", block+10), "empty.txt": "", "other": "\xff",
	})
	walk := func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && strings.HasSuffix(path, ".go") {
			add(path)
		}
		return err
	}
	expect.OK(t, filepath.WalkDir(dir, walk))
	add(filepath.Join(more, "a.txt"))
	add(filepath.Join(more, "b.txt"))
	for _, format := range []data.Format{data.LLMC, data.Megatron} {
		serial, done := prepare(t, 1, format, dir, more)
		f, tokens := all(t, serial)
		if !slices.Equal(tokens, want) || done != (Prepared{documents, int64(size), int64(len(want))}) {
			t.Errorf("%s: %d ids of %+v, want %d of %d documents, %d bytes", format, len(tokens), done, len(want), documents, size)
		}
		if f.Format != format || format == data.Megatron && f.Documents != int64(documents) {
			t.Errorf("%s: %d documents, want %d", f.Format, f.Documents, documents)
		}
		for _, workers := range []int{2, 5} {
			parallel, _ := prepare(t, workers, format, dir, more)
			written := []string{parallel, serial}
			for format == data.Megatron && len(written) < 4 {
				index, err := data.Index(written[len(written)-2])
				expect.OK(t, err)
				written = append(written, index)
			}
			for i := 0; i < len(written); i += 2 {
				if !bytes.Equal(expect.Read(t, written[i]), expect.Read(t, written[i+1])) {
					t.Errorf("%s: %d workers write another %s", format, workers, filepath.Ext(written[i]))
				}
			}
		}
	}
}

func TestPrepareRefuses(t *testing.T) {
	dir := expect.Tree(t, map[string]string{
		"fine.txt": "text", "late.txt": strings.Repeat("word ", block/2) + "\xe2\x82x", "cut.txt": "a€\xe2\x82", "empty/a.txt": "", "zero.txt": "abc\x00",
	})
	position := len("word ") * (block / 2)
	for _, c := range []struct {
		name, output string
		inputs       []string
		want         string // DIR stands for dir
	}{
		{"not UTF-8, late", "o.bin", []string{"fine.txt", "late.txt", "cut.txt"}, fmt.Sprintf("DIR/late.txt: byte %d: 0xe2: the text is not UTF-8", position)},
		{"a character cut short", "o.bin", []string{"fine.txt", "cut.txt"}, "DIR/cut.txt: byte 4: 0xe2: the text is not UTF-8"},
		{"missing", "o.bin", []string{"fine.txt", "absent.txt"}, "DIR/absent.txt: no such file or directory"},
		{"no text", "o.bin", []string{"empty"}, "the inputs hold no text"},
		{"a zero byte", "o.bin", []string{"zero.txt"}, "DIR/zero.txt: byte 3: 0x00: a zero byte, want text in UTF-8"},
		{"output has another name", "o.tok", []string{"fine.txt"}, "DIR/o.tok: want a name that ends in .bin"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := Preparation{Keys: []string{"text"}, Tokenizer: GPT2(), Output: filepath.Join(dir, c.output), Format: data.LLMC, Workers: 3}
			for _, input := range c.inputs {
				p.Inputs = append(p.Inputs, filepath.Join(dir, input))
			}
			_, err := p.Run(context.Background(), func(int64, int64) {})
			if _, ok := errors.AsType[InputError](err); !ok {
				t.Fatalf("%v is no InputError", err)
			}
			if got := strings.ReplaceAll(err.Error(), dir, "DIR"); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if _, err := os.Stat(filepath.Join(dir, "o.bin")); err == nil {
				t.Error("an output is left behind")
			}
		})
	}
}

// An error of the tokenizer names the file and where the piece begins in it.
func TestPrepareNamesWhereTheTokenizerFails(t *testing.T) {
	odd := errors.New("odd")
	word := func(text string) int {
		if n := strings.IndexByte(text[1:], ' '); n >= 0 {
			return 1 + n
		}
		return len(text)
	}
	ask := func(piece string) ([]int32, error) {
		if strings.Contains(piece, "odd") {
			return nil, odd
		}
		return []int32{1}, nil
	}
	x := Tokenizer{Vocab: 3, endOfText: 2, leads: led, cut: cut, encoder: func() *encoder {
		return &encoder{piece: word, ask: ask, known: map[string][]int32{}}
	}}
	dir := expect.Tree(t, map[string]string{
		"early.txt": "odd", "soon.txt": "a b odd", "late.txt": strings.Repeat("word ", block/2) + "odd",
	})
	for name, want := range map[string]string{
		"early.txt": "byte 0: odd",
		"soon.txt":  "byte 3: odd",
		"late.txt":  fmt.Sprintf("byte %d: odd", len("word ")*(block/2)-1),
	} {
		path := filepath.Join(dir, name)
		p := Preparation{Keys: []string{"text"}, Tokenizer: x, Inputs: []string{path}, Output: filepath.Join(dir, "o.bin"), Format: data.LLMC, Workers: 2}
		if _, err := p.Run(context.Background(), func(int64, int64) {}); !errors.Is(err, odd) || err.Error() != path+": "+want {
			t.Errorf("got %v, want %s: %s", err, path, want)
		}
	}
}

func TestPrepareStops(t *testing.T) {
	dir := expect.Tree(t, map[string]string{"a.txt": strings.Repeat("word ", block)})
	ctx, stop := context.WithCancelCause(context.Background())
	p := Preparation{Keys: []string{"text"}, Tokenizer: GPT2(), Inputs: []string{dir, dir, dir, dir, dir}, Output: filepath.Join(dir, "o.bin"), Format: data.Megatron, Workers: 1}
	enough := errors.New("enough")
	_, err := p.Run(ctx, func(int64, int64) { stop(enough) })
	if !errors.Is(err, enough) {
		t.Errorf("got %v, want %v", err, enough)
	}
	if _, err := os.Stat(p.Output); err == nil {
		t.Error("an output is left behind")
	}
}

// BenchmarkBPE is the rate of one core on the source of a module. No piece is known at first.
// library is the codec alone.
func BenchmarkBPE(b *testing.B) {
	_, paths := moduleText(b)
	var text string
	for _, path := range paths {
		text += string(expect.Read(b, path))
	}
	b.Run("dynmo", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			if _, err := newBPE().encode(nil, text); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("library", func(b *testing.B) {
		c := codec.NewR50kBase()
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			library(b, c, text)
		}
	})
}

// TestPartsRefusesAnEndlessWord: a text without a place to cut it would lie in
// memory as a whole.
func TestPartsRefusesAnEndlessWord(t *testing.T) {
	path := filepath.Join(t.TempDir(), "zeros.txt")
	expect.OK(t, os.WriteFile(path, []byte("two words "), 0o666))
	expect.OK(t, os.Truncate(path, 1<<40))
	err := parts(data.File{Path: path, Size: 1 << 40}, []string{"text"}, func([]byte, int) int { return 0 }, func(work) error { return nil })
	want := path + ": byte 0: 67371008 bytes without a place between two words, want text"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

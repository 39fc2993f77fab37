package tokenizer

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// Fields of a sentencepiece model file, a protocol buffer (google/sentencepiece,
// sentencepiece_model.proto), that affect ids. Its fields about training are ignored.
const (
	pieces         protowire.Number = 1 // ModelProto
	trainerSpec    protowire.Number = 2
	normalizerSpec protowire.Number = 3

	pieceText  protowire.Number = 1 // SentencePiece
	pieceScore protowire.Number = 2
	pieceType  protowire.Number = 3

	modelType          protowire.Number = 3 // TrainerSpec
	whitespaceAsSuffix protowire.Number = 24
	byteFallback       protowire.Number = 35
	bosPiece           protowire.Number = 46
	eosPiece           protowire.Number = 47

	precompiledCharsmap    protowire.Number = 2 // NormalizerSpec
	addDummyPrefix         protowire.Number = 3
	removeExtraWhitespaces protowire.Number = 4
	escapeWhitespaces      protowire.Number = 5
)

// Types of pieces.
const (
	normalPiece      = 1
	unknownPiece     = 2
	controlPiece     = 3
	userDefinedPiece = 4
	bytePiece        = 6
)

const (
	bpeModel = 2 // value of modelType
	// maxPieces bounds the number of pieces: four times the largest vocabulary in use.
	maxPieces = 1 << 20
	// longestPiece bounds a piece, in bytes: sentencepiece's default limit is 16 characters.
	longestPiece = 1 << 10
)

// pieceModel is a sentencepiece model.
type pieceModel struct {
	file    string
	ids     map[string]int32 // id of every piece
	types   []uint64         // type of the piece, by id
	texts   []string         // text of the piece, by id
	spelt   []string         // the piece, by id
	scores  []float32        // score of the piece, by id
	end     int32            // id of the piece that ends texts
	longest int              // length of the longest piece, in bytes
	joints  *joints

	bos, eos, unknown             string
	bpe, fallback, suffix         bool
	charsmap, prefix, trim, plain bool // plain: spaces are not escaped
}

// parsePieces reads a model and checks that this package can encode with it: byte-pair encoding
// without normalisation, with byte fallback.
func parsePieces(file string, raw []byte) (*pieceModel, error) {
	m := &pieceModel{file: file, ids: make(map[string]int32), bos: "<s>", eos: "</s>", prefix: true, trim: true, joints: newJoints()}
	err := m.fields(field{raw: raw}, func(f field) error {
		switch {
		case f.kind != protowire.BytesType:
			return nil
		case f.number == pieces:
			return m.piece(f)
		case f.number == trainerSpec:
			return m.fields(f, m.trainer)
		case f.number == normalizerSpec:
			return m.fields(f, m.normalizer)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return m, m.check()
}

// field is a field of a message.
type field struct {
	number   protowire.Number
	kind     protowire.Type
	raw      []byte // of a message or string
	value    uint64 // of a number
	position int64  // offset of raw or value in the file
}

// fields calls visit for every field of a message.
func (m *pieceModel) fields(message field, visit func(field) error) error {
	raw, position := message.raw, message.position
	for len(raw) > 0 {
		number, kind, tag := protowire.ConsumeTag(raw)
		if tag < 0 {
			return m.fail(position, "no sentencepiece model: no field of a protocol buffer begins here")
		}
		size := protowire.ConsumeFieldValue(number, kind, raw[tag:])
		if size < 0 {
			return m.fail(position, "no sentencepiece model: field %d is malformed or cut short", number)
		}
		f := field{number: number, kind: kind, position: position + int64(tag)}
		switch kind {
		case protowire.BytesType:
			f.raw, _ = protowire.ConsumeBytes(raw[tag:])
			f.position += int64(size - len(f.raw))
		case protowire.VarintType:
			f.value, _ = protowire.ConsumeVarint(raw[tag:])
		case protowire.Fixed32Type:
			value, _ := protowire.ConsumeFixed32(raw[tag:])
			f.value = uint64(value)
		}
		if err := visit(f); err != nil {
			return err
		}
		raw, position = raw[tag+size:], position+int64(tag+size)
	}
	return nil
}

func (m *pieceModel) fail(position int64, format string, args ...any) error {
	return fmt.Errorf("%s: byte %d: %s", m.file, position, fmt.Sprintf(format, args...))
}

// piece reads a piece of the vocabulary.
func (m *pieceModel) piece(message field) error {
	var text string
	var score float32
	kind, id := uint64(normalPiece), int32(len(m.types))
	err := m.fields(message, func(f field) error {
		switch {
		case f.number == pieceText && f.kind == protowire.BytesType:
			text = string(f.raw)
		case f.number == pieceType && f.kind == protowire.VarintType:
			kind = f.value
		case f.number == pieceScore && f.kind == protowire.Fixed32Type:
			if score = math.Float32frombits(uint32(f.value)); score != score {
				return m.fail(f.position, "piece %d: its score is no number", id)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	_, twice := m.ids[text]
	switch {
	case id == maxPieces:
		return m.fail(message.position, "more than %d pieces", maxPieces)
	case text == "" || len(text) > longestPiece || !utf8.ValidString(text):
		return m.fail(message.position, "piece %d: want 1 to %d bytes of UTF-8", id, longestPiece)
	case twice:
		return m.fail(message.position, "piece %d: %.100q stands twice", id, text)
	}
	stands := text
	switch kind {
	case normalPiece, userDefinedPiece:
		m.longest = max(m.longest, len(text))
		m.joints.add(text)
		stands = strings.ReplaceAll(text, marked, " ")
	case bytePiece:
		var b byte
		if _, err := fmt.Sscanf(text, "<0x%02X>", &b); err != nil || fmt.Sprintf("<0x%02X>", b) != text {
			return m.fail(message.position, "piece %d: %.100q, want a byte as <0x0A>", id, text)
		}
		stands = string([]byte{b})
	case unknownPiece:
		m.unknown = text
	case controlPiece:
	default:
		return m.fail(message.position, "piece %d: type %d is not supported", id, kind)
	}
	m.ids[text] = id
	m.types, m.texts = append(m.types, kind), append(m.texts, stands)
	m.spelt, m.scores = append(m.spelt, text), append(m.scores, score)
	return nil
}

// trainer reads a field of the trainer's settings.
func (m *pieceModel) trainer(f field) error {
	switch {
	case f.number == modelType && f.kind == protowire.VarintType:
		m.bpe = f.value == bpeModel
	case f.number == byteFallback && f.kind == protowire.VarintType:
		m.fallback = f.value != 0
	case f.number == whitespaceAsSuffix && f.kind == protowire.VarintType:
		m.suffix = f.value != 0
	case f.number == bosPiece && f.kind == protowire.BytesType:
		m.bos = string(f.raw)
	case f.number == eosPiece && f.kind == protowire.BytesType:
		m.eos = string(f.raw)
	}
	return nil
}

// normalizer reads a field of the normalizer's settings.
func (m *pieceModel) normalizer(f field) error {
	switch {
	case f.number == precompiledCharsmap && f.kind == protowire.BytesType:
		m.charsmap = len(f.raw) > 0
	case f.number == addDummyPrefix && f.kind == protowire.VarintType:
		m.prefix = f.value != 0
	case f.number == removeExtraWhitespaces && f.kind == protowire.VarintType:
		m.trim = f.value != 0
	case f.number == escapeWhitespaces && f.kind == protowire.VarintType:
		m.plain = f.value == 0
	}
	return nil
}

// check returns an error for other kinds of models. It also finds the piece that ends texts.
func (m *pieceModel) check() error {
	count := make(map[uint64]int)
	for _, kind := range m.types {
		count[kind]++
	}
	end, ok := m.ids[m.eos]
	m.end = end
	switch {
	case len(m.types) == 0:
		return fmt.Errorf("%s: no pieces: no sentencepiece model", m.file)
	case !m.bpe:
		return m.unsupported("trainer_spec.model_type", "the model is no byte-pair encoding")
	case !m.fallback:
		return m.unsupported("trainer_spec.byte_fallback", "without bytes some text has no ids")
	case count[bytePiece] != 1<<8:
		return fmt.Errorf("%s: %d pieces are bytes, want 256", m.file, count[bytePiece])
	case count[unknownPiece] != 1:
		return fmt.Errorf("%s: %d pieces stand for the unknown, want 1", m.file, count[unknownPiece])
	case m.suffix:
		return m.unsupported("trainer_spec.treat_whitespace_as_suffix", "spaces end words")
	case m.charsmap:
		return m.unsupported("normalizer_spec.precompiled_charsmap", "text is normalised")
	case m.trim:
		return m.unsupported("normalizer_spec.remove_extra_whitespaces", "spaces are removed")
	case m.plain:
		return m.unsupported("normalizer_spec.escape_whitespaces", "spaces are not escaped")
	case !ok || m.types[end] != controlPiece:
		return fmt.Errorf("%s: no control piece %.100q (trainer_spec.eos_piece) to end documents with", m.file, m.eos)
	}
	return nil
}

func (m *pieceModel) unsupported(setting, why string) error {
	return fmt.Errorf("%s: %s: %s, which is not supported", m.file, setting, why)
}

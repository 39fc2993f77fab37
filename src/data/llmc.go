package data

import (
	"encoding/binary"
	"math"
)

// A token file of llm.c (karpathy/llm.c, dev/data/data_common.py) is a header
// of 256 32-bit words, then the ids: [0] the magic number, [1] the version,
// [2] the number of ids, the others 0. GPT-2's ids are u16, LLaMA-3's u32.
const (
	llmcHeader = 256 * 4

	llmcGPT2Magic, llmcGPT2Version     = 20240520, 1
	llmcLlama3Magic, llmcLlama3Version = 20240801, 7
	llmcLlama3End                      = 128000 // token between documents
)

// isLLMC reports whether a file has the magic number of llm.c's token files.
func isLLMC(raw []byte) bool {
	if len(raw) < 4 {
		return false
	}
	magic := binary.LittleEndian.Uint32(raw)
	return magic == llmcGPT2Magic || magic == llmcLlama3Magic
}

// parseLLMC returns the ids of a token file of llm.c, without a copy.
func parseLLMC(file string, raw []byte) (ids, error) {
	size := int64(len(raw))
	if size < llmcHeader {
		return ids{}, broken(file, size, "the file ends inside the header of %d bytes", llmcHeader)
	}
	word := func(i int) uint32 { return binary.LittleEndian.Uint32(raw[4*i:]) }
	x := ids{raw[llmcHeader:], u16}
	version := uint32(llmcGPT2Version)
	switch magic := word(0); magic {
	case llmcGPT2Magic:
	case llmcLlama3Magic:
		x.element, version = u32, llmcLlama3Version
	default:
		return ids{}, broken(file, 0, "magic number %d, want %d (GPT-2) or %d (LLaMA-3)", magic, llmcGPT2Magic, llmcLlama3Magic)
	}
	if got := word(1); got != version {
		return ids{}, broken(file, 4, "version %d, want %d", got, version)
	}
	count := int64(word(2))
	if count > math.MaxInt32 {
		return ids{}, broken(file, 8, "%d tokens, want fewer than 2^31", count)
	}
	for i := 3; i < llmcHeader/4; i++ {
		if word(i) != 0 {
			return ids{}, broken(file, int64(4*i), "header word %d is %d, want 0", i, word(i))
		}
	}
	if want := llmcHeader + count*int64(x.width()); size != want {
		return ids{}, broken(file, 8, "%d tokens of %d bytes make a file of %d bytes, it has %d", count, x.width(), want, size)
	}
	return x, nil
}

// llmcHead returns the header of a file with count ids.
func llmcHead(e element, count int64) []byte {
	head := make([]byte, llmcHeader)
	magic, version := uint32(llmcGPT2Magic), uint32(llmcGPT2Version)
	if e == u32 {
		magic, version = llmcLlama3Magic, llmcLlama3Version
	}
	for i, word := range []uint32{magic, version, uint32(count)} {
		binary.LittleEndian.PutUint32(head[4*i:], word)
	}
	return head
}

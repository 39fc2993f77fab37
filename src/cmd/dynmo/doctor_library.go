package main

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
)

// libraryBuilt returns the description of the build of a library of kernels: the
// text of its symbol dynmo_cuda_built. It does not open the library, for which
// CUDA's own libraries would have to be here.
func libraryBuilt(path string) (string, error) {
	f, err := elf.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	if err != nil {
		return "", err
	}
	for _, s := range symbols {
		if s.Name == "dynmo_cuda_built" {
			return textAt(f, s)
		}
	}
	for _, s := range symbols {
		if s.Name == "dynmo_cuda_calls" {
			return "not built by build.sh cuda", nil // the emulator's
		}
	}
	return "", errors.New("it is no library of kernels: it has no dynmo_cuda_calls")
}

// textAt returns the C string that a symbol is.
func textAt(f *elf.File, s elf.Symbol) (string, error) {
	for _, section := range f.Sections {
		if section.Type != elf.SHT_PROGBITS || s.Value < section.Addr || s.Value+s.Size > section.Addr+section.Size {
			continue
		}
		text := make([]byte, s.Size)
		if _, err := section.ReadAt(text, int64(s.Value-section.Addr)); err != nil {
			return "", err
		}
		before, _, _ := bytes.Cut(text, []byte{0})
		return string(before), nil
	}
	return "", fmt.Errorf("its symbol %s lies in no section", s.Name)
}

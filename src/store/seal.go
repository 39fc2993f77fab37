package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
)

// unsealed stands in a manifest where its own hash is to be.
var unsealed = strings.Repeat("0", 2*sha256.Size)

// seal returns the text of a manifest that has its own SHA-256 in it: that of the text
// with zeros in place of the hash.
func (m Manifest) seal() ([]byte, error) {
	m.SHA256 = unsealed
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, err
	}
	return bytes.Replace(text, []byte(unsealed), []byte(sealOf(text)), 1), nil
}

// sealed returns an error unless a manifest that was read from a text is as seal left it.
func (m Manifest) sealed(text []byte) error {
	if m.SHA256 == "" {
		return nil // written before manifests had one
	}
	if sealOf(bytes.Replace(text, []byte(m.SHA256), []byte(unsealed), 1)) != m.SHA256 {
		return errors.New("not as it was written: its SHA-256 is another than it says")
	}
	return nil
}

func sealOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

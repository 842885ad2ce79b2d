package head

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/actors/cluster/store"
	"github.com/lfactor/lfactor/actors/cluster/trust"
)

// sealed is a term whose jobs are encrypted in the store, as they have the contents of files and of variables:
// a backup, which is a copy of the store, has no passwords. The key is made of that of the authority, which all
// heads have and no backup has.
type sealed struct {
	store.Term
	aead cipher.AEAD
}

// seal is what an encrypted value begins with; one that does not was written before there were such.
var seal = []byte("sealed1\x00")

// sealedKeys are the keys whose values are encrypted.
var sealedKeys = []string{"jobs/", "aside/"}

func newSealed(term store.Term, ca *trust.CA) (store.Term, error) {
	key, err := ca.Derive("lfactor store", 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	return &sealed{term, aead}, err
}

// Commit implements store.Term.
func (s *sealed) Commit(ops []store.Op) (int64, error) {
	ops = slices.Clone(ops)
	for i, op := range ops {
		of := func(prefix string) bool { return strings.HasPrefix(op.Key, prefix) }
		if op.Value != nil && slices.ContainsFunc(sealedKeys, of) {
			ops[i].Value = s.aead.Seal(slices.Clone(seal), nil, op.Value, []byte(op.Key))
		}
	}
	return s.Term.Commit(ops)
}

// List implements store.Term.
func (s *sealed) List(prefix string, see func(key string, value []byte) error) error {
	return s.Term.List(prefix, func(key string, value []byte) error {
		if rest, ok := bytes.CutPrefix(value, seal); ok {
			open, err := s.aead.Open(nil, nil, rest, []byte(prefix+key))
			if err == nil {
				value = open
			} // else it is no JSON, and is set aside by its name
		}
		return see(key, value)
	})
}

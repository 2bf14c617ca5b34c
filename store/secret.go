package store

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mirrorgate/mirrorgate/broker"
)

// sealedPrefix marks a configuration value that is sealed in the state log.
const sealedPrefix = "enc:v1:"

// redacted stands for a secret wherever a mirror is printed.
const redacted = "[hidden]"

// Secret reports whether the value of a mirror configuration key is a secret: never logged, never returned to a client,
// sealed in the state log.
func Secret(key string) bool {
	key = strings.ToLower(key)
	return broker.Secret(key) || strings.HasSuffix(key, "password") || strings.HasSuffix(key, "secret") || strings.HasSuffix(key, "token")
}

// String returns the mirror without its secrets.
func (m Mirror) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "mirror %s (source cluster %s, created %d)", m.Name, m.SourceClusterID, m.CreatedMs)
	for _, key := range slices.Sorted(maps.Keys(m.Config)) {
		value := m.Config[key]
		if Secret(key) {
			value = redacted
		}
		fmt.Fprintf(&b, " %s=%q", key, value)
	}
	return b.String()
}

// GoString keeps %#v from printing secrets.
func (m Mirror) GoString() string { return m.String() }

// hasSecrets reports whether any configured value is a secret.
func (m Mirror) hasSecrets() bool {
	for key, value := range m.Config {
		if Secret(key) && value != "" {
			return true
		}
	}
	return false
}

// sealer seals the secrets of mirrors for the state log: AES-256-GCM, bound to the mirror's name and the
// configuration key so that a sealed value cannot be moved to another place. A nil sealer leaves everything in clear.
type sealer struct{ aead cipher.AEAD }

func newSealer(key []byte) (*sealer, error) {
	if len(key) == 0 {
		return nil, nil
	}
	if len(key) != 32 {
		return nil, fmt.Errorf("the secret key has %d bytes, it needs 32", len(key))
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	return &sealer{aead: aead}, nil
}

// seal returns the configuration with its secrets sealed; config itself is not changed. A value that is sealed already
// (by a key that this gateway does not have) stays as it is, so that an update never seals twice.
func (s *sealer) seal(mirror string, config map[string]string) map[string]string {
	if s == nil {
		return config
	}
	out := maps.Clone(config)
	for key, value := range config {
		if !Secret(key) || value == "" || strings.HasPrefix(value, sealedPrefix) {
			continue
		}
		nonce := make([]byte, s.aead.NonceSize())
		_, _ = rand.Read(nonce) // never fails since Go 1.24
		sealed := s.aead.Seal(nonce, nonce, []byte(value), secretPlace(mirror, key))
		out[key] = sealedPrefix + base64.RawStdEncoding.EncodeToString(sealed)
	}
	return out
}

// open returns the configuration in clear. What cannot be opened stays sealed, and the error names the keys.
func (s *sealer) open(mirror string, config map[string]string) (map[string]string, error) {
	var errs []error
	out := maps.Clone(config)
	for key, value := range config {
		if !Secret(key) || !strings.HasPrefix(value, sealedPrefix) {
			continue
		}
		clear, err := s.openValue(mirror, key, value)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s of mirror %s: %w", key, mirror, err))
			continue
		}
		out[key] = clear
	}
	return out, errors.Join(errs...)
}

func (s *sealer) openValue(mirror, key, value string) (string, error) {
	if s == nil {
		return "", errors.New("the value is sealed and this gateway has no secret key")
	}
	sealed, err := base64.RawStdEncoding.DecodeString(value[len(sealedPrefix):])
	if err != nil || len(sealed) < s.aead.NonceSize() {
		return "", errors.New("the sealed value is damaged")
	}
	n := s.aead.NonceSize()
	clear, err := s.aead.Open(nil, sealed[:n], sealed[n:], secretPlace(mirror, key))
	if err != nil {
		return "", errors.New("the value was sealed with another secret key, or for another place")
	}
	return string(clear), nil
}

func secretPlace(mirror, key string) []byte { return []byte(mirror + "\x00" + key) }

package broker

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unicode/utf16"
)

// ReadPropertiesFile reads a Java .properties file: comments with # or !, keys ended by =, : or whitespace, lines
// continued by a backslash, and the escapes of java.util.Properties. Text is UTF-8. A key given twice is an error: with
// Java's rule (the last wins) half of a security configuration can vanish unseen.
func ReadPropertiesFile(path string) (map[string]string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading properties: %w", err)
	}
	props, err := parsePropertiesText(string(b))
	if err != nil {
		return nil, fmt.Errorf("reading properties file %s: %w", path, err)
	}
	return props, nil
}

func parsePropertiesText(text string) (map[string]string, error) {
	props := map[string]string{}
	lines := strings.Split(strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n"), "\n")
	for i := 0; i < len(lines); i++ {
		number := i + 1
		line := strings.TrimLeft(lines[i], " \t\f")
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		for continued(line) {
			line = line[:len(line)-1]
			if i++; i >= len(lines) {
				break
			}
			line += strings.TrimLeft(lines[i], " \t\f")
		}
		rawKey, rawValue := splitProperty(line)
		key, err := unescapeProperty(rawKey)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		value, err := unescapeProperty(rawValue)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		if _, ok := props[key]; ok {
			return nil, fmt.Errorf("line %d: property %s is given twice", number, key)
		}
		props[key] = value
	}
	return props, nil
}

// continued: an odd number of backslashes ends the line.
func continued(line string) bool {
	n := len(line) - len(strings.TrimRight(line, `\`))
	return n%2 == 1
}

// splitProperty finds the end of the key: the first =, : or whitespace that is not escaped.
func splitProperty(line string) (key, value string) {
	i := 0
	for i < len(line) && !strings.ContainsRune("=: \t\f", rune(line[i])) {
		if line[i] == '\\' {
			i++
		}
		i++
	}
	i = min(i, len(line))
	key, value = line[:i], strings.TrimLeft(line[i:], " \t\f")
	if value != "" && (value[0] == '=' || value[0] == ':') {
		value = strings.TrimLeft(value[1:], " \t\f")
	}
	return key, value
}

func unescapeProperty(s string) (string, error) {
	if !strings.ContainsRune(s, '\\') {
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		switch s[i] {
		case 'u':
			r, used, err := unicodeEscape(s[i-1:])
			if err != nil {
				return "", err
			}
			b.WriteRune(r)
			i += used - 2
		case 'f':
			b.WriteByte('\f')
		default:
			b.WriteByte(unescape(s[i]))
		}
	}
	return b.String(), nil
}

// unicodeEscape decodes \uXXXX, or two of them that are a surrogate pair, at the start of s.
func unicodeEscape(s string) (r rune, used int, err error) {
	first, err := hexEscape(s)
	if err != nil {
		return 0, 0, err
	}
	if utf16.IsSurrogate(first) && len(s) >= 12 && s[6] == '\\' && s[7] == 'u' {
		second, err := hexEscape(s[6:])
		if err != nil {
			return 0, 0, err
		}
		return utf16.DecodeRune(first, second), 12, nil
	}
	return first, 6, nil
}

func hexEscape(s string) (rune, error) {
	if len(s) >= 6 {
		if n, err := strconv.ParseUint(s[2:6], 16, 16); err == nil {
			return rune(n), nil
		}
	}
	return 0, errors.New(`malformed \u escape`)
}

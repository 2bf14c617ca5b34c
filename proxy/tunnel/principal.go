package tunnel

import (
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// PrincipalRules names clients by the subject of their certificates, as ssl.principal.mapping.rules does in brokers.
type PrincipalRules struct{ rules []principalRule }

type principalRule struct {
	pattern     *regexp.Regexp // nil: the subject as it is
	replacement string
	letters     byte // 'L', 'U' or 0
}

// ParsePrincipalRules parses rules in Kafka's form: DEFAULT, or RULE:pattern/replacement/ with L or U at the end for lower
// or upper case, with commas between them. The first whose pattern matches the whole subject counts. Patterns are RE2.
func ParsePrincipalRules(text string) (*PrincipalRules, error) {
	rules := new(PrincipalRules)
	for rest := strings.TrimSpace(text); rest != ""; {
		rule, after, err := parsePrincipalRule(rest)
		if err != nil {
			return nil, fmt.Errorf("rule %d: %w", len(rules.rules)+1, err)
		}
		rules.rules = append(rules.rules, rule)
		rest = strings.TrimSpace(after)
		if rest == "" {
			break
		}
		if rest[0] != ',' {
			return nil, fmt.Errorf("rule %d is followed by %q, not by a comma", len(rules.rules), rest)
		}
		rest = strings.TrimSpace(rest[1:])
	}
	return rules, nil
}

func parsePrincipalRule(text string) (rule principalRule, rest string, err error) {
	if rest, ok := strings.CutPrefix(text, "DEFAULT"); ok {
		return rule, rest, nil
	}
	rest, ok := strings.CutPrefix(text, "RULE:")
	if !ok {
		return rule, "", errors.New("it begins neither with RULE: nor is it DEFAULT")
	}
	pattern, rest, ok := cutSlash(rest)
	replacement, rest, ok2 := cutSlash(rest)
	if !ok || !ok2 {
		return rule, "", errors.New("it is not RULE:pattern/replacement/")
	}
	if rest != "" && (rest[0] == 'L' || rest[0] == 'U') {
		rule.letters, rest = rest[0], rest[1:]
	}
	if rule.pattern, err = regexp.Compile(`^(?:` + pattern + `)$`); err != nil {
		return rule, "", err
	}
	rule.replacement = goReplacement(strings.ReplaceAll(replacement, `\/`, "/"), rule.pattern.NumSubexp())
	return rule, rest, nil
}

// goReplacement writes a replacement as package regexp has it: $1 is ${1}, and a dollar sign that refers to no group is
// one.
func goReplacement(s string, groups int) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] != '$':
			b.WriteByte(s[i])
		case i+1 < len(s) && s[i+1] >= '0' && int(s[i+1]-'0') <= groups:
			fmt.Fprintf(&b, "${%c}", s[i+1])
			i++
		default:
			b.WriteString("$$")
		}
	}
	return b.String()
}

// cutSlash cuts at the first slash that has no backslash before it.
func cutSlash(s string) (before, after string, found bool) {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '/':
			return s[:i], s[i+1:], true
		}
	}
	return s, "", false
}

// Name returns the principal for a subject: the subject itself where there are no rules or none matches.
func (r *PrincipalRules) Name(subject string) string {
	if r == nil {
		return subject
	}
	for _, rule := range r.rules {
		if rule.pattern == nil {
			return subject
		}
		if !rule.pattern.MatchString(subject) {
			continue
		}
		name := rule.pattern.ReplaceAllString(subject, rule.replacement)
		switch rule.letters {
		case 'L':
			name = strings.ToLower(name)
		case 'U':
			name = strings.ToUpper(name)
		}
		return name
	}
	return subject
}

// keywords are the attribute types that RFC 2253 names; all others are written as numbers.
var keywords = map[string]string{
	"2.5.4.3": "CN", "2.5.4.7": "L", "2.5.4.8": "ST", "2.5.4.10": "O", "2.5.4.11": "OU", "2.5.4.6": "C", "2.5.4.9": "STREET",
	"0.9.2342.19200300.100.1.25": "DC", "0.9.2342.19200300.100.1.1": "UID",
}

// DistinguishedName writes a DER subject as brokers do in principals (RFC 2253, as Java has it), so that rules and ACLs
// can be copied from there. A subject that cannot be read is written in hex.
func DistinguishedName(der []byte) string {
	var sequence []asn1.RawValue // of SETs
	if rest, err := asn1.Unmarshal(der, &sequence); err != nil || len(rest) > 0 {
		return "#" + hex.EncodeToString(der)
	}
	slices.Reverse(sequence)
	names := make([]string, 0, len(sequence))
	for _, set := range sequence {
		name, err := relativeName(set.FullBytes)
		if err != nil {
			return "#" + hex.EncodeToString(der)
		}
		names = append(names, name)
	}
	return strings.Join(names, ",")
}

func relativeName(der []byte) (string, error) {
	var attributes []struct {
		Type  asn1.ObjectIdentifier
		Value asn1.RawValue
	}
	if _, err := asn1.UnmarshalWithParams(der, &attributes, "set"); err != nil {
		return "", err
	}
	var parts []string
	for _, a := range attributes {
		keyword := keywords[a.Type.String()]
		var value string
		if _, err := asn1.Unmarshal(a.Value.FullBytes, &value); keyword == "" || err != nil {
			parts = append(parts, a.Type.String()+"=#"+hex.EncodeToString(a.Value.FullBytes))
			continue
		}
		parts = append(parts, keyword+"="+escapeValue(value))
	}
	return strings.Join(parts, "+"), nil
}

// escapeValue escapes what has a meaning of its own in a name.
func escapeValue(s string) string {
	var b strings.Builder
	for i, r := range s {
		switch {
		case strings.ContainsRune(`,=+<>#;"\`, r), r == ' ' && (i == 0 || i == len(s)-1):
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == 0:
			b.WriteString(`\00`)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

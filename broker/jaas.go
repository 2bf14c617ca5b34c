package broker

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// parseSASL also returns the user, see Config.User.
func parseSASL(props map[string]string) (login sasl.Mechanism, user string, err error) {
	mechanism := strings.ToUpper(strings.TrimSpace(props[propMechanism]))
	switch mechanism {
	case "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER":
	case "":
		return nil, "", badProperty(propMechanism, "missing, though security.protocol uses SASL")
	default:
		return nil, "", badProperty(propMechanism, "%q is none of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER", mechanism)
	}
	if strings.TrimSpace(props[propJaas]) == "" {
		return nil, "", badProperty(propJaas, "missing, though security.protocol uses SASL")
	}
	jaas, err := parseJaas(props[propJaas])
	if err != nil {
		return nil, "", badProperty(propJaas, "%v", err)
	}
	if err := jaas.fits(mechanism); err != nil {
		return nil, "", badProperty(propJaas, "%v", err)
	}
	name, password := jaas.options["username"], jaas.options["password"]
	// With a delegation token (KIP-48) the user is the token's ID and the password its HMAC.
	scrams := scram.Auth{User: name, Pass: password, IsToken: strings.EqualFold(jaas.options["tokenauth"], "true")}
	if user = name; scrams.IsToken {
		user = ""
	}
	switch mechanism {
	case "PLAIN":
		return plain.Auth{User: name, Pass: password}.AsMechanism(), name, nil
	case "SCRAM-SHA-256":
		return scrams.AsSha256Mechanism(), user, nil
	case "SCRAM-SHA-512":
		return scrams.AsSha512Mechanism(), user, nil
	}
	login, err = parseOauth(jaas, strings.TrimSpace(props[propTokenURL]))
	return login, "", err
}

// jaasEntry is a login module with its options, as Kafka takes it: Module required key="value" … ;
type jaasEntry struct {
	module  string
	options map[string]string
}

// fits checks that the login module is the one of the mechanism and that it has the options it needs.
func (j jaasEntry) fits(mechanism string) error {
	want := map[string]string{
		"PLAIN": "PlainLoginModule", "SCRAM-SHA-256": "ScramLoginModule", "SCRAM-SHA-512": "ScramLoginModule",
		"OAUTHBEARER": "OAuthBearerLoginModule",
	}[mechanism]
	if got := j.module[strings.LastIndexByte(j.module, '.')+1:]; got != want {
		return fmt.Errorf("login module is %q, but %s needs %s", got, mechanism, want)
	}
	if mechanism == "OAUTHBEARER" {
		return nil
	}
	for _, option := range []string{"username", "password"} {
		if _, ok := j.options[option]; !ok {
			return fmt.Errorf("option %s is missing", option)
		}
	}
	return nil
}

// parseJaas parses one entry. Its errors never quote the text, which holds passwords.
func parseJaas(text string) (jaasEntry, error) {
	s := jaasScanner{text: text}
	entry := jaasEntry{options: map[string]string{}}
	var err error
	if entry.module, err = s.word(); err != nil || entry.module == "" {
		return entry, errors.New("no login module")
	}
	flag, err := s.word()
	switch strings.ToLower(flag) {
	case "required", "requisite", "sufficient", "optional":
	default:
		return entry, errors.New("the login module is not followed by a control flag such as required")
	}
	for err == nil && !s.take(';') {
		var key, value string
		if key, err = s.word(); err != nil || key == "" {
			return entry, errors.New("malformed option, or no ';' at the end")
		}
		if !s.take('=') {
			return entry, errors.New("option without '='")
		}
		if value, err = s.word(); err != nil {
			return entry, err
		}
		entry.options[key] = value
	}
	if s.skip(); err == nil && s.text != "" {
		return entry, errors.New("more than one login module")
	}
	return entry, err
}

type jaasScanner struct{ text string }

func (s *jaasScanner) skip() { s.text = strings.TrimLeft(s.text, " \t\r\n") }

func (s *jaasScanner) take(c byte) bool {
	s.skip()
	if s.text == "" || s.text[0] != c {
		return false
	}
	s.text = s.text[1:]
	return true
}

// word takes a bare word or a quoted string with backslash escapes.
func (s *jaasScanner) word() (string, error) {
	s.skip()
	if s.text == "" || s.text[0] != '"' && s.text[0] != '\'' {
		end := strings.IndexAny(s.text, " \t\r\n=;")
		if end < 0 {
			end = len(s.text)
		}
		word := s.text[:end]
		s.text = s.text[end:]
		return word, nil
	}
	quote := s.text[0]
	var word strings.Builder
	for i := 1; i < len(s.text); i++ {
		switch c := s.text[i]; {
		case c == quote:
			s.text = s.text[i+1:]
			return word.String(), nil
		case c == '\\' && i+1 < len(s.text):
			i++
			word.WriteByte(unescape(s.text[i]))
		default:
			word.WriteByte(c)
		}
	}
	return "", errors.New("quoted value without an end")
}

func unescape(c byte) byte {
	switch c {
	case 'n':
		return '\n'
	case 't':
		return '\t'
	case 'r':
		return '\r'
	}
	return c
}

// parseOauth supports what Kafka's own login module does without Java classes: an unsecured token made from the option
// unsecuredLoginStringClaim_sub (for trials), a token in a file, and a token endpoint with client credentials.
func parseOauth(jaas jaasEntry, endpoint string) (sasl.Mechanism, error) {
	extensions := jaas.extensions()
	if endpoint == "" {
		sub := jaas.options["unsecuredLoginStringClaim_sub"]
		if sub == "" {
			return nil, badProperty(propTokenURL, "missing, and sasl.jaas.config has no unsecuredLoginStringClaim_sub")
		}
		return oauth.Oauth(func(context.Context) (oauth.Auth, error) {
			return oauth.Auth{Token: unsecuredToken(sub, time.Now()), Extensions: extensions}, nil
		}), nil
	}
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, badProperty(propTokenURL, "not a URL")
	}
	switch u.Scheme {
	case "file":
		return oauth.Oauth(func(context.Context) (oauth.Auth, error) {
			token, err := os.ReadFile(u.Path)
			return oauth.Auth{Token: strings.TrimSpace(string(token)), Extensions: extensions}, err
		}), nil
	case "http", "https":
		for _, option := range []string{"clientId", "clientSecret"} {
			if jaas.options[option] == "" {
				return nil, badProperty(propJaas, "option %s is missing", option)
			}
		}
		return oauth.Oauth(func(ctx context.Context) (oauth.Auth, error) {
			token, err := requestToken(ctx, u.String(), jaas.options)
			return oauth.Auth{Token: token, Extensions: extensions}, err
		}), nil
	}
	return nil, badProperty(propTokenURL, "scheme %q is none of file, http, https", u.Scheme)
}

// extensions are the SASL extensions (KIP-342) among the options: extension_NAME, or unsecuredLoginExtension_NAME.
func (j jaasEntry) extensions() map[string]string {
	var found map[string]string
	for option, value := range j.options {
		name, ok := strings.CutPrefix(option, "extension_")
		if !ok {
			name, ok = strings.CutPrefix(option, "unsecuredLoginExtension_")
		}
		if !ok || name == "" {
			continue
		}
		if found == nil {
			found = make(map[string]string)
		}
		found[name] = value
	}
	return found
}

func unsecuredToken(sub string, now time.Time) string {
	claims, _ := json.Marshal(map[string]any{"sub": sub, "iat": now.Unix(), "exp": now.Add(time.Hour).Unix()}) // cannot fail
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"none"}`)) + "." + encode(claims) + "."
}

// requestToken does the client credentials grant of OAuth 2.0.
func requestToken(ctx context.Context, endpoint string, options map[string]string) (string, error) {
	form := url.Values{"grant_type": {"client_credentials"}}
	if scope := options["scope"]; scope != "" {
		form.Set("scope", scope)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, strings.NewReader(form.Encode()))
	if err != nil {
		return "", fmt.Errorf("token endpoint: %w", err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.SetBasicAuth(options["clientId"], options["clientSecret"])
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", fmt.Errorf("token endpoint: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return "", fmt.Errorf("token endpoint: %w", err)
	}
	var token struct {
		AccessToken string `json:"access_token"`
	}
	if resp.StatusCode != http.StatusOK || json.Unmarshal(body, &token) != nil || token.AccessToken == "" {
		return "", fmt.Errorf("token endpoint answered %s without a token", resp.Status)
	}
	return token.AccessToken, nil
}

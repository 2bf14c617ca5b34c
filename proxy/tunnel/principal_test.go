package tunnel

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"
)

// The names are what Java's X500Principal.getName() makes of the same bytes.
func TestDistinguishedName(t *testing.T) {
	for der, want := range map[string]string{
		"3035310e300c06035504030c05616c69636531163014060355040b0c0d5061796d656e74732c20496e63310b3009060355040a0c024578":                                                                                       `O=Ex,OU=Payments\, Inc,CN=alice`,
		"306031133011060a0992268993f22c64011916036f726731173015060a0992268993f22c64011916076578616d706c6531133011060a0992268993f22c6401010c03626f62311b301906035504030c1223626f6220227822203c793e3b613d625c63": `CN=\#bob \"x\" \<y\>\;a\=b\\c,UID=bob,DC=example,DC=org`,
		"30413114301206092a864886f70d01090116056140622e63310e300c06035504030c05206c65616431193009060355040513023132300c06035504030c056d756c7469":                                                               `2.5.4.5=#13023132+CN=multi,CN=\ lead,1.2.840.113549.1.9.1=#16056140622e63`,
		"30233110300e06035504030c074ac3bc7267656e310f300d060355040a0c06747261696c20":                                                                                                                           `O=trail\ ,CN=Jürgen`,
		"3000": "",
		"3003": "#3003",
	} {
		raw, err := hex.DecodeString(der)
		require.NoError(t, err)
		require.Equal(t, want, DistinguishedName(raw))
	}
}

func TestPrincipalRules(t *testing.T) {
	const subject = "CN=Alice,OU=Payments,O=Example,C=DE"
	for rules, want := range map[string]string{
		"":                                  subject,
		"DEFAULT":                           subject,
		`RULE:^CN=(.*?),OU=Payments.*$/$1/`: "Alice",
		`RULE:^CN=(.*?),OU=(.*?),.*$/$2-$1/L, DEFAULT`:              "payments-alice",
		`RULE:^CN=none$/x/ , RULE:^CN=(\w+).*/user:$1/U`:            "USER:ALICE",
		`RULE:^CN=none$/x/`:                                         subject,
		`DEFAULT,RULE:.*/never/`:                                    subject,
		`RULE:^CN=(.*?),OU=(.*?),O=(.*?),C=(.*?)$/$1@$2\/$3 $4$9$/`: "Alice@Payments/Example DE$9$",
	} {
		parsed, err := ParsePrincipalRules(rules)
		require.NoError(t, err, rules)
		require.Equal(t, want, parsed.Name(subject), rules)
	}
	for rules, want := range map[string]string{
		"CN=x":                  "rule 1: it begins neither with RULE:",
		"DEFAULT,":              "",
		"DEFAULT DEFAULT":       "not by a comma",
		"DEFAULT,RULE:a/b":      "rule 2: it is not RULE:pattern/replacement/",
		"RULE:(/b/":             "missing closing )",
		`RULE:a\/b/c`:           "it is not RULE:pattern/replacement/",
		"RULE:a/b/X":            "not by a comma",
		"DEFAULT,,DEFAULT,EASY": "rule 2",
	} {
		_, err := ParsePrincipalRules(rules)
		if want == "" {
			require.NoError(t, err, rules)
			continue
		}
		require.ErrorContains(t, err, want, rules)
	}
}

// Client certificates are input of strangers as far as the authority signs anything.
func FuzzDistinguishedName(f *testing.F) {
	for _, seed := range []string{"3000", "30233110300e06035504030c074ac3bc7267656e310f300d060355040a0c06747261696c20",
		"30413114301206092a864886f70d01090116056140622e63310e300c06035504030c05206c65616431193009060355040513023132300c06035504030c056d756c7469"} {
		der, err := hex.DecodeString(seed)
		require.NoError(f, err)
		f.Add(der)
	}
	rules, err := ParsePrincipalRules(`RULE:^CN=(.*?),.*$/$1/L, DEFAULT`)
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, der []byte) {
		name := DistinguishedName(der)
		require.LessOrEqual(t, len(name), 8*len(der)+8)
		rules.Name(name)
	})
}

func FuzzPrincipalRules(f *testing.F) {
	f.Add(`RULE:^CN=(.*?),OU=(.*?),.*$/$2-$1/L, DEFAULT`, "CN=a,OU=b,O=c")
	f.Add(`DEFAULT,RULE:a\/b/$9$/U`, "")
	f.Fuzz(func(_ *testing.T, text, subject string) {
		if rules, err := ParsePrincipalRules(text); err == nil {
			rules.Name(subject)
		}
	})
}

package main

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// identities are the users of the control plane itself. Everybody else comes
// in with a ServiceAccount's token.
var identities = []struct{ name, user, groups string }{
	{"admin", "admin", "system:masters"},
	// It runs all controllers as one user, so it needs all their rights.
	{"controller-manager", "system:kube-controller-manager", "system:masters"},
	{"scheduler", "system:kube-scheduler", ""},
	{"proxy", "system:kube-proxy", ""},
	{"node-agent", "node-agent", "system:masters"},
}

func writeIdentities(dir, server string) error {
	var tokens strings.Builder
	for _, id := range identities {
		random := make([]byte, 16)
		if _, err := rand.Read(random); err != nil {
			return err
		}
		token := hex.EncodeToString(random)
		fmt.Fprintf(&tokens, "%s,%s,%s,%q\n", token, id.user, id.name, id.groups)
		config := kubeconfig(server, filepath.Join(dir, "ca.crt"), id.name, token)
		if err := os.WriteFile(filepath.Join(dir, id.name+".kubeconfig"), []byte(config), 0o600); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "tokens.csv"), []byte(tokens.String()), 0o600)
}

func kubeconfig(server, ca, user, token string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: kubebox
clusters:
- name: kubebox
  cluster: {server: %q, certificate-authority: %q}
users:
- name: %q
  user: {token: %q}
contexts:
- name: kubebox
  context: {cluster: kubebox, user: %q}
`, server, ca, user, token, user)
}

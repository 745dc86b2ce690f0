package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"flag"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// runPKI writes all that a control plane needs to trust itself: a CA, the API
// server's certificate, the service-account key pair, a static token file and
// one kubeconfig per identity.
func runPKI(args []string) error {
	flags := flag.NewFlagSet("pki", flag.ExitOnError)
	dir := flags.String("dir", "", "where to write")
	address := flags.String("address", "", "address of the API server")
	services := flags.String("service-cidr", "", "range of the Services; its first address is the API server's too")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ip := net.ParseIP(*address)
	if ip == nil {
		return fmt.Errorf("--address %q is not an address", *address)
	}
	first, err := firstAddress(*services)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(*dir, 0o755); err != nil {
		return err
	}
	if err := writeCertificates(*dir, []net.IP{net.IPv4(127, 0, 0, 1), ip, first}); err != nil {
		return err
	}
	if err := writeServiceAccountKeys(*dir); err != nil {
		return err
	}
	return writeIdentities(*dir, "https://"+net.JoinHostPort(*address, "6443"))
}

func firstAddress(cidr string) (net.IP, error) {
	_, network, err := net.ParseCIDR(cidr)
	if err != nil {
		return nil, err
	}
	ip := network.IP.To4()
	if ip == nil {
		return nil, fmt.Errorf("%s is not an IPv4 range", cidr)
	}
	ip[3]++
	return ip, nil
}

func writeCertificates(dir string, addresses []net.IP) error {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	// An hour of grace for clocks that are set back while a world runs.
	from := time.Now().Add(-time.Hour)
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubebox-ca"},
		NotBefore: from, NotAfter: from.AddDate(1, 0, 0),
		IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature | x509.KeyUsageCRLSign,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	server := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "kube-apiserver"},
		NotBefore: from, NotAfter: from.AddDate(1, 0, 0),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
		IPAddresses: addresses,
	}
	der, err := x509.CreateCertificate(rand.Reader, server, ca, &key.PublicKey, caKey)
	if err != nil {
		return err
	}
	if err := writePEM(dir, "ca.crt", "CERTIFICATE", caDER, 0o644); err != nil {
		return err
	}
	if err := writeKey(dir, "ca.key", caKey); err != nil {
		return err
	}
	if err := writePEM(dir, "apiserver.crt", "CERTIFICATE", der, 0o644); err != nil {
		return err
	}
	return writeKey(dir, "apiserver.key", key)
}

func writeServiceAccountKeys(dir string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return err
	}
	if err := writePEM(dir, "sa.pub", "PUBLIC KEY", public, 0o644); err != nil {
		return err
	}
	return writeKey(dir, "sa.key", key)
}

func writeKey(dir, name string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return writePEM(dir, name, "EC PRIVATE KEY", der, 0o600)
}

func writePEM(dir, name, kind string, der []byte, mode os.FileMode) error {
	return os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), mode)
}

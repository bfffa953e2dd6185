#!/bin/sh
# Makes the certificates of the tests, valid for 100 years; needs OpenSSL 3.  Run it here, and
# commit what it makes.  The keys protect nothing: everybody can read them.
set -eu
cd "$(dirname "$0")"
rm -f ./*.pem
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

key() { openssl genpkey -quiet -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1.key.pem"; }

authority() { # name
    key "$1"
    openssl req -x509 -new -key "$1.key.pem" -out "$1.pem" -days 36500 -subj "/CN=Test $1" \
        -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign
}

issue() { # authority name days alternative-names
    key "$2"
    openssl req -new -key "$2.key.pem" -subj "/CN=$2" -out "$work/$2.csr"
    {
        echo basicConstraints=critical,CA:FALSE
        echo keyUsage=critical,digitalSignature
        echo extendedKeyUsage=serverAuth,clientAuth
        echo subjectKeyIdentifier=hash
        echo authorityKeyIdentifier=keyid
        echo "subjectAltName=$4"
    } >"$work/$2.ext"
    openssl x509 -req -in "$work/$2.csr" -CA "$1.pem" -CAkey "$1.key.pem" -days "$3" \
        -extfile "$work/$2.ext" -out "$2.pem" 2>"$work/log" || { cat "$work/log"; exit 1; }
}

authority ca
authority other_ca
issue ca server 36500 DNS:localhost,IP:127.0.0.1,IP:::1
issue ca client 36500 DNS:client.example
issue ca elsewhere 36500 DNS:elsewhere.example
issue ca expired -1 DNS:localhost,IP:127.0.0.1,IP:::1
issue other_ca stranger 36500 DNS:localhost,IP:127.0.0.1,IP:::1
openssl pkey -in server.key.pem -aes256 -passout pass:secret -out encrypted.key.pem
rm ca.key.pem other_ca.key.pem

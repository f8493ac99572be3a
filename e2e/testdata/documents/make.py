"""Writes the documents of this folder: python make.py. All texts are ours; the same bytes come out each time.

They describe a house that does not exist, so that no model knows an answer without reading."""

import os
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))


def write(name, content):
    with open(os.path.join(HERE, name), "wb") as f:
        f.write(content if isinstance(content, bytes) else content.encode())


def pack(name, *parts):
    with zipfile.ZipFile(os.path.join(HERE, name), "w") as z:
        for part, content in parts:
            info = zipfile.ZipInfo(part, (2026, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_STORED if part == "mimetype" else zipfile.ZIP_DEFLATED
            z.writestr(info, content)


write("heating.md", """# The heating of Larkspur House

## Boiler

The boiler is a Brunnen K17 from 2019. It stands in the cellar, behind the blue door. Its pressure must be
between 1.4 and 1.9 bar. When it falls below 1.4 bar, open the brass valve under the boiler for ten seconds.

## Night mode

From 23:10 to 05:40 the flow temperature goes down to 38 degrees.

| Room | Radiator | Setting |
|---|---|---|
| Library | two | 4 |
| Pantry | none | 0 |
| Nursery | one | 3 |
""")

write("garden.html", """<!doctype html><html><head><title>The garden</title><script>alert("no")</script></head><body>
<nav>Home | Garden | Contact</nav>
<main><h1>The garden of Larkspur House</h1>
<p>The pear trees along the southern wall were planted in 1931 by Odile Marchetti, who called the sort <b>Amber Widow</b>.</p>
<h2>Watering</h2><p>The greenhouse is watered every third morning with rain water from the copper tank, never from the tap.</p>
<ul><li>Tomatoes: two cans</li><li>Orchids: one cup</li></ul></main>
<footer>No part of this page may be printed.</footer></body></html>
""")


def p(text, style=""):
    style = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f"<w:p>{style}<w:r><w:t>{text}</w:t></w:r></w:p>"


types = '<?xml version="1.0" encoding="UTF-8"?><Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/><Default Extension="xml" ContentType="application/xml"/>%s</Types>'
rels = '<?xml version="1.0" encoding="UTF-8"?><Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">%s</Relationships>'
office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/"
pack("guests.docx",
     ("[Content_Types].xml", types % '<Override PartName="/word/document.xml" ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/>'),
     ("_rels/.rels", rels % f'<Relationship Id="rId1" Type="{office}officeDocument" Target="word/document.xml"/>'),
     ("word/styles.xml", '<w:styles xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:style w:type="paragraph" w:styleId="Heading1"><w:name w:val="heading 1"/></w:style></w:styles>'),
     ("word/document.xml", '<?xml version="1.0" encoding="UTF-8"?><w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:body>'
      + p("For guests", "Heading1") + p("Guests sleep in the Heron Room on the second floor. The key hangs on the hook with the green ribbon.")
      + p("Breakfast", "Heading1") + p("Breakfast is served at a quarter past eight. Whoever does not eat eggs tells Benedikt the evening before.")
      + "</w:body></w:document>"))

ns = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
rows = [("Item", "Supplier", "Price in euros"), ("Firewood", "Tannhof", "412"), ("Candles", "Lichtblick", "37"), ("Lamp oil", "Orsova", "89")]
sheet = "".join(f'<row r="{i}">' + "".join(f'<c r="{c}{i}" t="inlineStr"><is><t>{v}</t></is></c>' for c, v in zip("ABC", r)) + "</row>" for i, r in enumerate(rows, 1))
pack("costs.xlsx",
     ("[Content_Types].xml", types % ('<Override PartName="/xl/workbook.xml" ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml"/>'
      '<Override PartName="/xl/worksheets/sheet1.xml" ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.worksheet+xml"/>')),
     ("_rels/.rels", rels % f'<Relationship Id="rId1" Type="{office}officeDocument" Target="xl/workbook.xml"/>'),
     ("xl/_rels/workbook.xml.rels", rels % f'<Relationship Id="rId1" Type="{office}worksheet" Target="worksheets/sheet1.xml"/>'),
     ("xl/workbook.xml", f'<workbook xmlns="{ns}" xmlns:r="{office[:-1]}"><sheets><sheet name="Winter" sheetId="1" r:id="rId1"/></sheets></workbook>'),
     ("xl/worksheets/sheet1.xml", f'<worksheet xmlns="{ns}"><sheetData>{sheet}</sheetData></worksheet>'))

pack("stories.epub", ("mimetype", "application/epub+zip"),
     ("META-INF/container.xml", '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container" version="1.0"><rootfiles><rootfile full-path="book.opf" media-type="application/oebps-package+xml"/></rootfiles></container>'),
     ("book.opf", '<package xmlns="http://www.idpf.org/2007/opf" version="3.0"><metadata xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>Stories of the house</dc:title></metadata>'
      '<manifest><item id="a" href="a.xhtml" media-type="application/xhtml+xml"/></manifest><spine><itemref idref="a"/></spine></package>'),
     ("a.xhtml", "<html><body><h1>The fox on the stairs</h1><p>In the winter of 1954 a fox lived on the back stairs of Larkspur House. The children named her Quillon and fed her barley bread.</p></body></html>"))

write("alarm.eml", """From: Mira Tolvanen <mira@example.org>
To: Household <house@example.org>
Subject: The alarm
Date: Mon, 2 Nov 2026 10:00:00 +0100
MIME-Version: 1.0
Content-Type: text/plain; charset=utf-8
Content-Transfer-Encoding: quoted-printable

Dear all,

the alarm is tested on the first Thursday of each month at noon. If it rings
at another time, leave by the chapel gate and count heads under the chestnut=
 tree.

Mira
""".replace("\n", "\r\n"))


def pdf(name, pages):
    out, at = bytearray(b"%PDF-1.4\n"), []

    def add(body):
        at.append(len(out))
        out.extend(f"{len(at)} 0 obj\n".encode() + body + b"\nendobj\n")

    kids = " ".join(f"{4 + 2 * i} 0 R" for i in range(len(pages)))
    add(b"<< /Type /Catalog /Pages 2 0 R >>")
    add(f"<< /Type /Pages /Count {len(pages)} /Kids [{kids}] >>".encode())
    add(b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    for i, lines in enumerate(pages):
        text = "".join(f"BT /F1 {size} Tf 72 {y} Td ({line}) Tj ET\n" for size, y, line in lines).encode()
        add(f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {5 + 2 * i} 0 R /Resources << /Font << /F1 3 0 R >> >> >>".encode())
        add(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(text), text))
    start = len(out)
    out.extend(f"xref\n0 {len(at) + 1}\n0000000000 65535 f \n".encode())
    out.extend(b"".join(f"{o:010d} 00000 n \n".encode() for o in at))
    out.extend(f"trailer\n<< /Size {len(at) + 1} /Root 1 0 R >>\nstartxref\n{start}\n%%EOF\n".encode())
    write(name, bytes(out))


pdf("boat.pdf", [
    [(22, 700, "The boat"), (12, 660, "The rowing boat is called Petrel. It lies in the boat house at the lower pond"),
     (12, 645, "and may be used from April to October by whoever can swim.")],
    [(22, 700, "Repairs"), (12, 660, "Cracks in the hull are closed with pine tar and hemp, never with glue. The oars were made"),
     (12, 645, "by the carpenter Isidor Vance from ash wood.")]])

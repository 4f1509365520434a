//! Where addresses are, by a file in the MaxMind DB format.
//!
//! Many make such files, and what is in them differs: a position (`location`, as MaxMind has it, or `latitude` and `longitude` by
//! themselves), or no more than a country. A country counts as where its largest city is: most of its servers are not far
//! from there.

use std::fs::File;
use std::io::Read as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use maxminddb::{LookupResult, MaxMindDbError, PathElement, Reader, path};
use nephila_core::assign::Position;
use serde::Deserialize;

/// The largest such file.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// The code of each country, and the degrees north and east of its largest city.
const COUNTRIES: &str = "AD+43+2 AE+25+55 AF+35+69 AG+17-62 AI+18-63 AL+41+20 AM+40+45 AO-9+13 AR-35-58 AS-14-171 AT+48+16 AU-34+151 \
    AW+13-70 AX+60+20 AZ+40+50 BA+44+18 BB+13-60 BD+24+90 BE+51+4 BF+12-2 BG+43+23 BH+26+51 BI-3+29 BJ+6+2 BL+18-63 \
    BM+32-65 BN+5+115 BO-16-68 BQ+12-68 BR-24-47 BS+25-77 BT+27+90 BW-25+26 BY+54+28 BZ+17-88 CA+44-79 CC-12+97 \
    CD-4+15 CF+4+19 CG-4+15 CH+47+9 CI+5-4 CK-21-160 CL-33-71 CM+4+10 CN+31+121 CO+5-74 CR+10-84 CU+23-82 CV+15-24 \
    CW+12-69 CX-10+106 CY+35+33 CZ+50+14 DE+53+13 DJ+12+43 DK+56+13 DM+15-61 DO+18-70 DZ+37+3 EC+0-79 EE+59+25 \
    EG+30+31 EH+27-13 ER+15+39 ES+40-4 ET+9+39 FI+60+25 FJ-18+179 FK-52-58 FM+7+158 FO+62-7 FR+49+2 GA+0+9 GB+52+0 \
    GD+12-62 GE+42+45 GF+5-52 GG+49-3 GH+7-2 GI+36-5 GL+64-52 GM+13-17 GN+10-14 GP+16-62 GQ+2+10 GR+38+24 GS-54-37 \
    GT+15-91 GU+14+145 GW+12-16 GY+7-58 HK+22+114 HN+14-87 HR+46+16 HT+19-72 HU+47+19 ID-6+107 IE+53-6 IL+32+35 \
    IM+54-4 IN+19+73 IQ+33+44 IR+36+51 IS+64-22 IT+42+13 JE+49-2 JM+18-77 JO+32+36 JP+36+140 KE-1+37 KG+43+75 \
    KH+12+105 KI+1+173 KM-12+43 KN+17-63 KP+39+126 KR+38+127 KW+29+48 KY+19-81 KZ+43+77 LA+18+103 LB+34+36 LC+14-61 \
    LI+47+10 LK+7+80 LR+6-11 LS-29+27 LT+55+25 LU+50+6 LV+57+24 LY+33+13 MA+34-8 MC+44+7 MD+47+29 ME+42+19 MF+18-63 \
    MG-19+48 MH+7+171 MK+42+21 ML+13-8 MM+17+96 MN+48+107 MO+22+114 MP+15+146 MQ+15-61 MR+18-16 MS+17-62 MT+36+14 \
    MU-20+57 MV+4+74 MW-14+34 MX+19-99 MY+3+102 MZ-26+33 NA-23+17 NC-22+166 NE+14+2 NF-29+168 NG+6+3 NI+12-86 \
    NL+52+4 NO+60+11 NP+28+85 NR-1+167 NU-19-170 NZ-37+175 OM+24+58 PA+9-80 PE-12-77 PF-18-150 PG-9+147 PH+15+121 \
    PK+32+74 PL+52+21 PM+47-56 PN-25-130 PR+18-66 PS+32+35 PT+39-9 PW+8+135 PY-25-58 QA+25+52 RE-21+55 RO+44+26 \
    RS+45+20 RU+56+38 RW-2+30 SA+21+39 SB-9+160 SC-5+55 SD+16+33 SE+59+18 SG+1+104 SH-16-6 SI+46+15 SJ+78+16 \
    SK+48+17 SL+8-13 SM+44+12 SN+15-17 SO+2+45 SR+6-55 SS+5+32 ST+0+7 SV+14-89 SX+18-63 SY+36+37 SZ-26+31 TC+22-72 \
    TD+12+15 TF-49+70 TG+6+1 TH+14+101 TJ+39+69 TL-9+126 TM+38+58 TN+37+10 TO-21-175 TR+41+29 TT+11-61 TV-9+179 \
    TW+25+122 TZ-7+39 UA+50+31 UG+0+33 US+41-74 UY-35-56 UZ+41+69 VA+42+12 VC+13-61 VE+10-67 VG+18-65 VI+18-65 \
    VN+11+107 VU-18+168 WF-13-176 WS-14-172 XK+43+21 YE+15+44 YT-13+45 ZA-26+28 ZM-15+28 ZW-18+31";

/// Why a file does not say where addresses are.
#[derive(Debug, thiserror::Error)]
pub enum PlacesError {
    /// It cannot be read.
    #[error("cannot read {}, which `geoip` names", .0.display())]
    Read(PathBuf, #[source] std::io::Error),
    /// It is too large.
    #[error("{} has more than {FILE_BYTES_MAX} bytes: name a file with less detail with `geoip`", .0.display())]
    TooLarge(PathBuf),
    /// It is of another kind.
    #[error("{}, which `geoip` names, is no file in the MaxMind DB format (.mmdb)", .0.display())]
    NotPlaces(PathBuf, #[source] MaxMindDbError),
}

/// Such a file, in memory.
#[derive(Debug)]
pub struct Places {
    reader: Reader<Vec<u8>>,
}

impl Places {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Places, PlacesError> {
        let mut bytes = Vec::new();
        let read = File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes));
        match read {
            Err(error) => Err(PlacesError::Read(path.to_owned(), error)),
            Ok(length) if length as u64 > FILE_BYTES_MAX => Err(PlacesError::TooLarge(path.to_owned())),
            Ok(_) => Reader::from_source(bytes)
                .map(|reader| Places { reader })
                .map_err(|error| PlacesError::NotPlaces(path.to_owned(), error)),
        }
    }

    /// Where an address is, if the file says that in a way that is known here.
    pub fn locate(&self, address: IpAddr) -> Option<Position> {
        let entry = self.reader.lookup(address.to_canonical()).ok()?;
        let degrees = |of: [&[PathElement<'_>]; 2]| {
            let [latitude, longitude] = of.map(|path| value::<f64>(&entry, path));
            Position::new(latitude?, longitude?)
        };
        degrees([&path!["location", "latitude"], &path!["location", "longitude"]])
            .or_else(|| degrees([&path!["latitude"], &path!["longitude"]]))
            .or_else(|| {
                let codes: [&[PathElement<'_>]; 3] = [
                    &path!["country", "iso_code"],
                    &path!["country_code"],
                    &path!["registered_country", "iso_code"],
                ];
                largest_city(codes.into_iter().find_map(|path| value::<&str>(&entry, path))?)
            })
    }
}

/// What an entry has at a path; nothing if that is not there or of another kind.
fn value<'a, T: Deserialize<'a>>(entry: &LookupResult<'a, Vec<u8>>, path: &[PathElement<'_>]) -> Option<T> {
    entry.decode_path(path).ok().flatten()
}

fn largest_city(country: &str) -> Option<Position> {
    let entry = COUNTRIES.split_ascii_whitespace().find(|entry| entry.get(..2) == Some(country))?;
    let (_, degrees) = entry.split_at(2);
    let east = 1 + degrees.get(1..)?.find(['+', '-'])?;
    Position::new(degrees[..east].parse().ok()?, degrees[east..].parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/geoip");

    /// How far an address is from a place by a file; `None` if the file is not there.
    fn apart(file: &str, address: &str, place: (f64, f64)) -> Option<f64> {
        let path = Path::new(DATA).join(file);
        if !path.exists() {
            eprintln!("skipped: no ../shared/data");
            return None;
        }
        let position = Places::read(&path).unwrap().locate(address.parse().unwrap()).unwrap();
        Some(position.apart(Position::new(place.0, place.1).unwrap()))
    }

    #[test]
    fn every_country_is_somewhere() {
        let countries: Vec<&str> = COUNTRIES.split_ascii_whitespace().collect();
        assert!(countries.len() > 240 && countries.is_sorted());
        assert!(countries.iter().all(|entry| largest_city(&entry[..2]).is_some()));
        assert_eq!(largest_city("JP"), Position::new(36.0, 140.0));
        assert_eq!(largest_city("BR"), Position::new(-24.0, -47.0));
        assert_eq!((largest_city("QQ"), largest_city("j"), largest_city("")), (None, None, None));
    }

    #[test]
    fn addresses_are_where_files_of_several_kinds_say() {
        const CITY: &str = "maxmind-test/tests/data/test-data/GeoIP2-City-Test.mmdb";
        const COUNTRY: &str = "maxmind-test/tests/data/test-data/GeoIP2-Country-Test.mmdb";
        for (file, address, place) in [
            (CITY, "89.160.20.128", (58.417, 15.617)),
            (CITY, "::ffff:89.160.20.128", (58.417, 15.617)),
            (COUNTRY, "89.160.20.128", (59.0, 18.0)),
            ("iptoasn-country/iptoasn-country.mmdb", "8.8.8.8", (41.0, -74.0)),
        ] {
            let Some(apart) = apart(file, address, place) else { return };
            assert!(apart < 10.0, "{file}, {address}: {apart} km");
        }
    }

    #[test]
    fn what_is_no_such_file_is_refused_and_what_is_broken_says_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.mmdb");
        assert!(matches!(Places::read(&path), Err(PlacesError::Read(..))));
        std::fs::write(&path, "not one").unwrap();
        assert!(matches!(Places::read(&path), Err(PlacesError::NotPlaces(..))));
        let Ok(files) = std::fs::read_dir(Path::new(DATA).join("maxmind-test/tests/data/test-data")) else {
            return eprintln!("skipped: no ../shared/data");
        };
        let mut read = 0;
        for path in files.map(|file| file.unwrap().path()) {
            let Ok(places) = Places::read(&path) else { continue };
            read += 1;
            for address in ["1.1.1.1", "89.160.20.128", "::1.1.1.1", "2001:220::1", "abcd::"] {
                places.locate(address.parse().unwrap());
            }
        }
        assert!(read > 10);
    }
}

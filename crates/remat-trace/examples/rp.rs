use remat_core::{Bytes, Config, PoolId};
use remat_trace::{open, Event, Replayer};
fn main(){
  for p in std::env::args().skip(1){
    let ev: Vec<Event> = open(std::path::Path::new(&p)).unwrap().collect::<Result<_,_>>().unwrap();
    let run=|b:Option<Bytes>|{ let t=std::time::Instant::now(); let mut r=Replayer::new(Config{budgets:vec![b],order: if std::env::var("DTR").is_ok() {remat_core::ReplayOrder::Dtr} else {remat_core::ReplayOrder::Fit}, policy: std::env::var("POL").map(|p| p.parse().unwrap()).unwrap_or_default(),..Config::default()}); let mut n=0; let mut e=None; for x in &ev{ if let Err(x)=r.feed(x){e=Some(x.to_string());break;} n+=1; if std::env::var("TL").is_ok() && n%200==0 {let c=r.engine().counters(); println!("      {n} ev {} rep {} cost {}", c.evictions,c.replays,c.replayed_cost.0 as f64/1e6)} if t.elapsed().as_secs()>20 {e=Some("slow".into());break;} } let c=r.engine().counters(); println!("   overhead {:.3}", 1.0 + c.replayed_cost.0 as f64/c.first_cost.0.max(1) as f64); println!("{p} {b:?} events {n}/{} peak {:?} ev {} rep {} {:?} {e:?}",ev.len(), r.engine().peak(PoolId(0)),c.evictions,c.replays,t.elapsed()); r.engine().peak(PoolId(0)) };
    let peak=run(None); for q in [70,60,50,40,30]{ run(Some(Bytes(peak.0*q/100))); }
  }
}
